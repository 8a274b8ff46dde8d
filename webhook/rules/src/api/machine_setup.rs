//! The setup of a Machine outside kubeadm's own configuration: files, users and disks.

use serde::Deserialize;

use super::{Redacted, RedactedText, Text};

/// A file to write before kubeadm runs.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct File<'a> {
    /// The path on the Machine.
    #[serde(borrow)]
    pub path: Option<Text<'a>>,
    /// The encoding of `content`.
    pub encoding: Option<Text<'a>>,
    /// The inline content, which may be secret.
    pub content: Option<RedactedText<'a>>,
    /// The Secret with the content.
    pub content_from: Option<SecretSource<'a>>,
}

/// The type of `contentFrom` and `passwdFrom`.
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
    /// The name of the Secret.
    #[serde(borrow)]
    pub name: Option<Text<'a>>,
    /// The key in the Secret.
    pub key: Option<Text<'a>>,
}

/// A user to add before kubeadm runs.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct User<'a> {
    /// The login name.
    #[serde(borrow)]
    pub name: Option<Text<'a>>,
    /// The password hash, which is secret.
    pub passwd: Option<Redacted>,
    /// The Secret with the password hash.
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
    /// File systems to create.
    pub filesystems: Option<Vec<Filesystem<'a>>>,
}

/// A partition table to write.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Partition<'a> {
    /// The device of the disk.
    #[serde(borrow)]
    pub device: Option<Text<'a>>,
    /// `mbr` or `gpt`.
    pub table_type: Option<Text<'a>>,
    /// The sizes of the partitions.
    pub disk_layout: Option<Vec<PartitionSize>>,
}

/// The size of one partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PartitionSize {
    /// The size in percent of the disk.
    pub percentage: Option<i64>,
}

/// A file system to create.
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

/// Additions to the generated Ignition configuration.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Ignition {
    /// The additions for Container Linux.
    pub container_linux_config: Option<ContainerLinuxConfig>,
}

/// Additions to the Ignition configuration for Container Linux.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerLinuxConfig {
    /// Configuration to merge into the generated one; it may contain secrets.
    pub additional_config: Option<Redacted>,
    /// Whether unknown settings are errors.
    pub strict: Option<bool>,
}

impl Ignition {
    /// Whether any field is set. Cluster API treats an empty section as unset.
    pub fn is_defined(&self) -> bool {
        self.container_linux_config.as_ref().is_some_and(|config| {
            config.strict.is_some() || config.additional_config.is_some_and(|config| !config.is_empty())
        })
    }
}
