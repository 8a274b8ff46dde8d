//! A `ConfigMap` or `Secret` as a kubelet mounts it: each file is a link into `..data`, which is a link that is
//! replaced atomically. It follows `pkg/volume/util/atomic_writer.go` of Kubernetes.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use anyhow::{Context as _, Result};

const DATA: &str = "..data";
const NEW_DATA: &str = "..data_tmp";

/// A mounted `ConfigMap` or `Secret`.
#[derive(Debug)]
pub struct Volume {
    folder: PathBuf,
}

impl Volume {
    pub(crate) const fn at(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// The file of a key.
    pub(crate) fn file(&self, key: &str) -> PathBuf {
        self.folder.join(key)
    }

    /// Replaces the content. Each content must have the same keys.
    pub fn replace(&self, entries: &[(&str, &str)]) -> Result<()> {
        self.try_replace(entries)
            .with_context(|| format!("replacing the content of {}", self.folder.display()))
    }

    fn try_replace(&self, entries: &[(&str, &str)]) -> Result<()> {
        let old = fs::read_link(self.folder.join(DATA)).ok();
        let new = format!("..{}", jiff::Timestamp::now().strftime("%Y_%m_%d_%H_%M_%S.%N"));
        let content = self.folder.join(&new);
        fs::create_dir_all(&content)?;
        for (key, value) in entries {
            fs::write(content.join(key), value)?;
        }
        symlink(&new, self.folder.join(NEW_DATA))?;
        fs::rename(self.folder.join(NEW_DATA), self.folder.join(DATA))?;
        if let Some(old) = old {
            fs::remove_dir_all(self.folder.join(old))?;
        } else {
            for (key, _) in entries {
                symlink(PathBuf::from(DATA).join(key), self.file(key))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::Volume;

    #[test]
    fn replaces_what_the_links_of_the_keys_lead_to() {
        let folder = std::env::temp_dir().join(format!("kcp-volume-{:x}", crate::run::random()));
        let volume = Volume::at(folder.clone());
        for value in ["first", "second"] {
            volume.replace(&[("a", value), ("b", "same")]).unwrap();
            assert_eq!(fs::read_to_string(volume.file("a")).unwrap(), value);
            assert_eq!(fs::read_to_string(volume.file("b")).unwrap(), "same");
            assert_eq!(
                fs::read_link(volume.file("a")).unwrap().to_str(),
                Some("..data/a")
            );
            // The links of the keys, the link of the data, and the data.
            assert_eq!(fs::read_dir(&folder).unwrap().count(), 4);
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
