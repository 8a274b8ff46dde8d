//! Writes files as an archive: tar in the format ustar (POSIX.1-1988), in gzip (RFC 1952).
//!
//! gzip contains the archive in stored blocks, without compression. A compressor would be another dependency, and a bundle is
//! small enough for mail and issue trackers.

use std::io::{self, Write};

use jiff::Timestamp;

/// A file of the archive.
pub(super) struct Entry<'e> {
    /// With `/` between folders.
    pub(super) path: String,
    pub(super) content: &'e [u8],
}

/// The size of the blocks of tar, in bytes.
const BLOCK: usize = 512;

/// The maximum length of a path in a header, in bytes.
const MAX_PATH: usize = 100;

/// The maximum number of bytes in a stored block of gzip.
const MAX_STORED: usize = 0xffff;

/// Writes an archive with these files, all with the same time of modification.
///
/// # Errors
/// A path is too long for the format, or the output cannot be written.
pub(super) fn write(entries: &[Entry<'_>], modified: Timestamp, output: &mut impl Write) -> io::Result<()> {
    let seconds = u64::try_from(modified.as_second()).unwrap_or_default();
    output.write_all(&gzip(&tar(entries, seconds)?))
}

fn tar(entries: &[Entry<'_>], modified: u64) -> io::Result<Vec<u8>> {
    let mut archive = Vec::new();
    for entry in entries {
        archive.extend(header(entry, modified)?);
        archive.extend_from_slice(entry.content);
        archive.resize(archive.len().next_multiple_of(BLOCK), 0);
    }
    // Two empty blocks are the end of an archive.
    archive.resize(archive.len() + 2 * BLOCK, 0);
    Ok(archive)
}

/// The header of a file that its owner may write and everybody may read, without the name of an owner.
fn header(entry: &Entry<'_>, modified: u64) -> io::Result<Vec<u8>> {
    let path = entry.path.as_bytes();
    if path.len() > MAX_PATH {
        let message = format!("{}: the path is longer than {MAX_PATH} bytes", entry.path);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let size = entry.content.len() as u64;
    let before_checksum = [
        padded(path, MAX_PATH),
        octal(0o644, 8),
        octal(0, 8),
        octal(0, 8),
        octal(size, 12),
        octal(modified, 12),
    ]
    .concat();
    // A regular file without a link, without names of owner and group, and without device numbers.
    let after_checksum = [b"0".to_vec(), padded(b"", 100), b"ustar\x0000".to_vec()].concat();
    let bytes = before_checksum.iter().chain(&after_checksum);
    // The sum counts the checksum itself as eight spaces.
    let sum = bytes.map(|byte| u64::from(*byte)).sum::<u64>() + 8 * u64::from(b' ');
    let checksum = format!("{sum:06o}\0 ").into_bytes();
    let header = [before_checksum, checksum, after_checksum].concat();
    Ok(padded(&header, BLOCK))
}

/// Fills a field with zeros. The bytes are not longer than the field.
fn padded(bytes: &[u8], width: usize) -> Vec<u8> {
    let mut field = bytes.to_vec();
    field.resize(width, 0);
    field
}

/// A number in octal digits that end with a zero byte.
fn octal(number: u64, width: usize) -> Vec<u8> {
    format!("{number:0digits$o}\0", digits = width - 1).into_bytes()
}

/// Wraps bytes in gzip, in stored blocks.
fn gzip(content: &[u8]) -> Vec<u8> {
    const DEFLATE: u8 = 8;
    const UNKNOWN_SYSTEM: u8 = 255;
    // No flags, no time and no name: tar has them.
    let mut wrapped = vec![0x1f, 0x8b, DEFLATE, 0, 0, 0, 0, 0, 0, UNKNOWN_SYSTEM];
    let mut blocks = content.chunks(MAX_STORED).peekable();
    while let Some(block) = blocks.next() {
        let is_last = blocks.peek().is_none();
        let length = u16::try_from(block.len()).unwrap_or(u16::MAX);
        wrapped.push(u8::from(is_last));
        wrapped.extend(length.to_le_bytes());
        wrapped.extend((!length).to_le_bytes());
        wrapped.extend_from_slice(block);
    }
    wrapped.extend(crc32(content).to_le_bytes());
    // A bundle is much smaller than 4 GiB.
    let size = u32::try_from(content.len()).unwrap_or(u32::MAX);
    wrapped.extend(size.to_le_bytes());
    wrapped
}

/// The checksum of gzip.
fn crc32(content: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0xedb8_8320;
    let step = |sum: u32, _| {
        let is_odd = sum & 1 == 1;
        (sum >> 1) ^ if is_odd { POLYNOMIAL } else { 0 }
    };
    let add = |sum: u32, byte: &u8| (0..8).fold(sum ^ u32::from(*byte), step);
    !content.iter().fold(!0, add)
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command};

    use jiff::Timestamp;

    use super::{Entry, MAX_PATH, MAX_STORED, crc32, write};

    const MODIFIED: &str = "2026-12-01T12:00:00Z";

    fn archive(entries: &[Entry<'_>]) -> std::io::Result<Vec<u8>> {
        let modified: Timestamp = MODIFIED.parse().expect("a time");
        let mut archive = Vec::new();
        write(entries, modified, &mut archive)?;
        Ok(archive)
    }

    /// The check value of the polynomial.
    #[test]
    fn the_checksum_is_that_of_gzip() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
    }

    #[test]
    fn tar_unpacks_the_files() {
        let large = vec![b'x'; 3 * MAX_STORED];
        let long = format!("bundle/{}.json", "n".repeat(MAX_PATH - "bundle/.json".len()));
        let entries = [
            ("bundle/a.json", b"{}\n".as_slice()),
            ("bundle/empty", b"".as_slice()),
            (long.as_str(), large.as_slice()),
        ];
        let entries = entries.map(|(path, content)| Entry {
            path: path.to_owned(),
            content,
        });
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("bundle.tar.gz");
        fs::write(&file, archive(&entries).expect("an archive")).expect("a file");
        let tar = Command::new("tar")
            .arg("-xzf")
            .arg(&file)
            .arg("-C")
            .arg(folder.path())
            .output();
        let tar = tar.expect("tar runs");
        assert!(tar.status.success(), "{}", String::from_utf8_lossy(&tar.stderr));
        for entry in &entries {
            let unpacked = folder.path().join(&entry.path);
            assert_eq!(
                fs::read(&unpacked).expect(&entry.path),
                entry.content,
                "{}",
                entry.path
            );
            let modified = fs::metadata(&unpacked).and_then(|metadata| metadata.modified());
            let modified = Timestamp::try_from(modified.expect("a time")).expect("a time");
            assert_eq!(modified.to_string(), MODIFIED);
        }
    }

    #[test]
    fn a_path_that_is_too_long_is_an_error() {
        let path = "n".repeat(MAX_PATH + 1);
        let entry = Entry { path, content: b"" };
        let error = archive(&[entry]).expect_err("too long").to_string();
        assert!(error.ends_with(": the path is longer than 100 bytes"), "{error}");
    }
}
