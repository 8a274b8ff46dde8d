//! The setup of a Machine outside kubeadm's own configuration: files, users and disks.

use serde::Deserialize;

use super::{Redacted, RedactedText, Text};

/// A file to write before kubeadm runs.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct File<'a> {
    #[serde(borrow)]
    pub path: Option<Text<'a>>,
    pub encoding: Option<Text<'a>>,
    /// The content of the file, which may be secret.
    pub content: Option<RedactedText<'a>>,
    /// The Secret that contains the content of the file.
    pub content_from: Option<SecretSource<'a>>,
}

/// The source of a file's content (`contentFrom`) or of a password hash (`passwdFrom`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SecretSource<'a> {
    /// The Secret, which is the only supported source.
    #[serde(borrow)]
    pub secret: Option<SecretKey<'a>>,
}

/// A key of a Secret in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SecretKey<'a> {
    #[serde(borrow)]
    pub name: Option<Text<'a>>,
    pub key: Option<Text<'a>>,
}

/// A user to add before kubeadm runs.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct User<'a> {
    #[serde(borrow)]
    pub name: Option<Text<'a>>,
    /// The hash of the user's password, which is secret.
    pub passwd: Option<Redacted>,
    /// The Secret that contains the hash of the user's password.
    pub passwd_from: Option<SecretSource<'a>>,
    /// Whether the account is disabled.
    pub inactive: Option<bool>,
}

/// Disks to partition and format.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DiskSetup<'a> {
    #[serde(borrow)]
    pub partitions: Option<Vec<Partition<'a>>>,
    pub filesystems: Option<Vec<Filesystem<'a>>>,
}

/// A partition table to write.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Partition<'a> {
    #[serde(borrow)]
    pub device: Option<Text<'a>>,
    /// The type of the partition table, `mbr` or `gpt`.
    pub table_type: Option<Text<'a>>,
    pub disk_layout: Option<Vec<PartitionSize>>,
}

/// The size of one partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PartitionSize {
    /// The size of the partition, in percent of the disk.
    pub percentage: Option<i64>,
}

/// A file system to create.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Filesystem<'a> {
    /// The partition to format: `auto`, `any`, `none` or a number.
    #[serde(borrow)]
    pub partition: Option<Text<'a>>,
    /// The type of an existing file system that cloud-init replaces, such as `ntfs`.
    #[serde(rename = "replaceFS")]
    pub replace_fs: Option<Text<'a>>,
}

/// Additions to the generated Ignition configuration.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Ignition {
    pub container_linux_config: Option<ContainerLinuxConfig>,
}

/// Additions to the Ignition configuration for Container Linux.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerLinuxConfig {
    /// The configuration that Cluster API merges into the generated one. It may contain secrets.
    pub additional_config: Option<Redacted>,
    /// Whether unknown settings in the additional configuration are errors.
    pub strict: Option<bool>,
}

impl Ignition {
    /// Whether any field of the section is set. Cluster API treats an empty section as unset.
    pub fn is_defined(&self) -> bool {
        self.container_linux_config.as_ref().is_some_and(|config| {
            config.strict.is_some() || config.additional_config.is_some_and(|config| !config.is_empty())
        })
    }
}
