//! Writes files as a tar archive that gzip compresses.

use std::io::{self, Write};

use flate2::{Compression, write::GzEncoder};
use jiff::Timestamp;
use tar::{Builder, Header};

/// A file of the archive.
pub(super) struct Entry<'e> {
    /// The path in the archive, with `/` between folders.
    pub(super) path: String,
    pub(super) content: &'e [u8],
}

/// Only the person who unpacks the archive may write the files.
const MODE: u32 = 0o644;

/// Writes an archive with these files, all with the same time of modification, and without the names of an owner.
pub(super) fn write(entries: &[Entry<'_>], modified: Timestamp, output: &mut impl Write) -> io::Result<()> {
    let seconds = u64::try_from(modified.as_second()).unwrap_or_default();
    let mut archive = Builder::new(GzEncoder::new(output, Compression::default()));
    for Entry { path, content } in entries {
        let mut header = Header::new_gnu();
        header.set_mode(MODE);
        header.set_mtime(seconds);
        header.set_size(content.len() as u64);
        archive.append_data(&mut header, path, *content)?;
    }
    archive.into_inner()?.finish()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command};

    use jiff::Timestamp;

    use super::{Entry, write};

    const MODIFIED: &str = "2026-12-01T12:00:00Z";

    #[test]
    fn tar_unpacks_the_files() {
        let large = vec![b'x'; 1 << 18];
        // A header has room for 100 bytes.
        let long = format!("bundle/{}.json", "n".repeat(200));
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
        let mut archive = Vec::new();
        let modified = MODIFIED.parse().expect("a time");
        write(&entries, modified, &mut archive).expect("an archive");
        assert!(archive.len() < large.len() / 10, "{} bytes", archive.len());
        fs::write(&file, archive).expect("a file");
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
}
