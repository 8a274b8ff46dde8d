//! What a Machine is given besides kubeadm's own configuration: files, users, disks.

use serde::Deserialize;

use super::{Text, Withheld};

/// A file that is written before kubeadm runs.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct File<'a> {
    /// Where it is written.
    #[serde(borrow)]
    pub path: Option<Text<'a>>,
    /// How `content` is encoded.
    pub encoding: Option<Text<'a>>,
    /// What is written.
    pub content: Option<Withheld>,
    /// Where what is written comes from.
    pub content_from: Option<SecretSource<'a>>,
}

/// `contentFrom` and `passwdFrom`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SecretSource<'a> {
    /// The only kind of source that there is.
    #[serde(borrow)]
    pub secret: Option<SecretKey<'a>>,
}

/// A key of a Secret in the namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SecretKey<'a> {
    /// The Secret's name.
    #[serde(borrow)]
    pub name: Option<Text<'a>>,
    /// The key in it.
    pub key: Option<Text<'a>>,
}

/// A user that is added.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct User<'a> {
    /// The login name.
    #[serde(borrow)]
    pub name: Option<Text<'a>>,
    /// The hash of the password.
    pub passwd: Option<Withheld>,
    /// Where the hash comes from.
    pub passwd_from: Option<SecretSource<'a>>,
    /// Whether the account is disabled.
    pub inactive: Option<bool>,
}

/// Disks to partition and format.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DiskSetup<'a> {
    /// Partition tables to write.
    #[serde(borrow)]
    pub partitions: Option<Vec<Partition<'a>>>,
    /// File systems to make.
    pub filesystems: Option<Vec<Filesystem<'a>>>,
}

/// A partition table to write.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Partition<'a> {
    /// The disk.
    #[serde(borrow)]
    pub device: Option<Text<'a>>,
    /// `mbr` or `gpt`.
    pub table_type: Option<Text<'a>>,
    /// Its partitions.
    pub disk_layout: Option<Vec<PartitionSize>>,
}

/// One partition of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PartitionSize {
    /// Of the disk.
    pub percentage: Option<i64>,
}

/// A file system to make.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Filesystem<'a> {
    /// `auto`, `any`, `none` or a number.
    #[serde(borrow)]
    pub partition: Option<Text<'a>>,
    /// The file system to replace.
    #[serde(rename = "replaceFS")]
    pub replace_fs: Option<Text<'a>>,
}

/// What is added to generated Ignition configuration.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Ignition {
    /// For Container Linux.
    pub container_linux_config: Option<ContainerLinuxConfig>,
}

/// What is added for Container Linux.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerLinuxConfig {
    /// Merged into the generated configuration.
    pub additional_config: Option<Withheld>,
    /// Whether its parser is strict.
    pub strict: Option<bool>,
}

impl Ignition {
    /// Whether it says anything: to Cluster API an empty section is none.
    pub fn is_defined(&self) -> bool {
        self.container_linux_config.as_ref().is_some_and(|config| {
            config.strict.is_some() || config.additional_config.is_some_and(|config| !config.is_empty())
        })
    }
}
