//! Where a snapshot is stored, as users write it.

use std::{
    fmt::{self, Display},
    path::PathBuf,
    str::FromStr,
};

/// The file name that means stdout, as in kubectl.
const STDOUT: &str = "-";

/// How the place of an object begins.
const S3: &str = "s3://";

/// The maximum length of an object's name in bytes (S3).
const MAX_KEY_BYTES: usize = 1024;

/// Where a snapshot is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotPlace {
    Stdout,
    /// A file, or a folder.
    File(PathBuf),
    Object(ObjectPlace),
}

/// An object of a bucket, or a folder in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectPlace {
    pub bucket: String,
    /// The name of the object from the root of the bucket. A folder if it is empty or ends with `/`.
    pub key: String,
}

impl FromStr for SnapshotPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == STDOUT {
            return Ok(Self::Stdout);
        }
        if let Some(object) = text.strip_prefix(S3) {
            return ObjectPlace::parse(object).map(Self::Object);
        }
        match text.split_once("://") {
            // The rest may contain a password.
            Some((scheme, _)) => Err(format!(
                "{scheme}:// is not supported: expected a file, a folder, s3://BUCKET/NAME, or -"
            )),
            None if text.is_empty() => Err("expected a file, a folder, s3://BUCKET/NAME, or -".to_owned()),
            None => Ok(Self::File(PathBuf::from(text))),
        }
    }
}

impl ObjectPlace {
    fn parse(text: &str) -> Result<Self, String> {
        let (bucket, key) = text.split_once('/').unwrap_or((text, ""));
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        if bucket.is_empty() || !bucket.bytes().all(is_name) {
            return Err(
                "expected s3://BUCKET/NAME, where BUCKET has only letters, digits, '.', '-' and '_'; credentials come from \
                 the environment"
                    .to_owned(),
            );
        }
        let folders = key.strip_suffix('/').unwrap_or(key);
        let is_part = |part: &str| !["", ".", ".."].contains(&part) && !part.contains(char::is_control);
        if !key.is_empty() && !folders.split('/').all(is_part) {
            return Err(
                "a name in a bucket must not have empty parts, '.', '..' or control characters".to_owned(),
            );
        }
        if key.len() > MAX_KEY_BYTES {
            return Err(format!(
                "a name in a bucket must have at most {MAX_KEY_BYTES} bytes"
            ));
        }
        Ok(Self {
            bucket: bucket.to_owned(),
            key: key.to_owned(),
        })
    }

    pub fn is_folder(&self) -> bool {
        self.key.is_empty() || self.key.ends_with('/')
    }

    /// The object with this name in this folder, or beside this object.
    pub fn sibling(&self, name: &str) -> Self {
        let folder = self
            .key
            .rfind('/')
            .map_or("", |end| self.key.get(..=end).unwrap_or_default());
        Self {
            bucket: self.bucket.clone(),
            key: format!("{folder}{name}"),
        }
    }
}

impl Display for SnapshotPlace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdout => formatter.write_str(STDOUT),
            Self::File(path) => write!(formatter, "{}", path.display()),
            Self::Object(object) => object.fmt(formatter),
        }
    }
}

impl Display for ObjectPlace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bucket, key } = self;
        write!(formatter, "{S3}{bucket}/{key}")
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{ObjectPlace, SnapshotPlace};

    fn object(bucket: &str, key: &str) -> SnapshotPlace {
        SnapshotPlace::Object(ObjectPlace {
            bucket: bucket.to_owned(),
            key: key.to_owned(),
        })
    }

    #[test]
    fn a_place_is_read_and_printed() {
        for (text, expected) in [
            ("-", SnapshotPlace::Stdout),
            ("edge.db", SnapshotPlace::File(PathBuf::from("edge.db"))),
            ("/backups/", SnapshotPlace::File(PathBuf::from("/backups/"))),
            ("s3:edge.db", SnapshotPlace::File(PathBuf::from("s3:edge.db"))),
            ("s3://backups/", object("backups", "")),
            ("s3://backups/prod/", object("backups", "prod/")),
            ("s3://backups/prod/edge.db", object("backups", "prod/edge.db")),
        ] {
            let place: Result<SnapshotPlace, String> = text.parse();
            assert_eq!(place.as_ref(), Ok(&expected), "{text}");
            assert_eq!(expected.to_string(), text);
        }
        assert_eq!("s3://backups".parse(), Ok(object("backups", "")));
    }

    #[test]
    fn a_place_that_cannot_be_is_refused_without_its_secrets() {
        let long = format!("s3://b/{}", "k".repeat(1025));
        for (text, expected) in [
            ("", "expected a file"),
            ("gs://backups/edge.db", "gs:// is not supported"),
            ("https://u:hunter2@s3.example/b", "https:// is not supported"),
            ("s3://", "expected s3://BUCKET/NAME"),
            ("s3:///edge.db", "expected s3://BUCKET/NAME"),
            ("s3://AKIA:hunter2@backups/edge.db", "expected s3://BUCKET/NAME"),
            ("s3://backups//edge.db", "must not have empty parts"),
            ("s3://backups//", "must not have empty parts"),
            ("s3://backups/../edge.db", "must not have empty parts"),
            ("s3://backups/a\nb", "must not have empty parts"),
            (long.as_str(), "at most 1024 bytes"),
        ] {
            let error = text.parse::<SnapshotPlace>().expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn a_folder_of_a_bucket_contains_names() {
        for (text, is_folder, sibling) in [
            ("s3://b/", true, "s3://b/n"),
            ("s3://b/p/q/", true, "s3://b/p/q/n"),
            ("s3://b/p/q", false, "s3://b/p/n"),
            ("s3://b/q", false, "s3://b/n"),
        ] {
            let Ok(SnapshotPlace::Object(place)) = text.parse() else {
                panic!("{text}");
            };
            assert_eq!(place.is_folder(), is_folder, "{text}");
            assert_eq!(place.sibling("n").to_string(), sibling);
        }
    }
}
