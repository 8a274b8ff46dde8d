//! A `ConfigMap` as a kubelet mounts it: each file is a link into `..data`, which is a link that is replaced at once.
//!
//! As `pkg/volume/util/atomic_writer.go` of Kubernetes does it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use anyhow::{Context as _, Result};

const DATA: &str = "..data";
const NEW_DATA: &str = "..data_tmp";

/// A mounted `ConfigMap`.
#[derive(Debug)]
pub struct ConfigMapVolume {
    folder: PathBuf,
}

impl ConfigMapVolume {
    pub(super) const fn at(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Replaces the content of the `ConfigMap`, which has this one key.
    pub fn replace(&self, key: &str, value: &str) -> Result<()> {
        self.try_replace(key, value)
            .with_context(|| format!("replacing the content of {}", self.folder.display()))
    }

    fn try_replace(&self, key: &str, value: &str) -> Result<()> {
        let old = fs::read_link(self.folder.join(DATA)).ok();
        let new = format!("..{}", jiff::Timestamp::now().strftime("%Y_%m_%d_%H_%M_%S.%N"));
        let content = self.folder.join(&new);
        fs::create_dir_all(&content)?;
        fs::write(content.join(key), value)?;
        symlink(&new, self.folder.join(NEW_DATA))?;
        fs::rename(self.folder.join(NEW_DATA), self.folder.join(DATA))?;
        if let Some(old) = old {
            fs::remove_dir_all(self.folder.join(old))?;
        } else {
            symlink(PathBuf::from(DATA).join(key), self.folder.join(key))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::ConfigMapVolume;

    #[test]
    fn replaces_what_the_link_of_the_key_leads_to() {
        let folder = std::env::temp_dir().join(format!("kcp-config-map-{:x}", crate::run::random()));
        let volume = ConfigMapVolume::at(folder.clone());
        let key = folder.join("key.yaml");
        for value in ["first", "second"] {
            volume.replace("key.yaml", value).unwrap();
            assert_eq!(fs::read_to_string(&key).unwrap(), value);
            assert_eq!(fs::read_link(&key).unwrap().to_str(), Some("..data/key.yaml"));
            // The link of the key, the link of the data, and the data.
            assert_eq!(fs::read_dir(&folder).unwrap().count(), 3);
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
