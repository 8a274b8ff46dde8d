//! The decisions of `kubectl kcp node`.
//!
//! - [`join`]: whether a host may join the control plane
//! - [`labelled_node`]: a Node with its labels, and its Machine
//! - [`remove`]: whether a Node, and its etcd member, may be removed
//! - [`labels`]: how the labels of a Node change; [`label_owner`]: which labels belong to Cluster API or the kubelet

pub mod join;
pub mod label_owner;
pub mod labelled_node;
pub mod labels;
pub mod remove;
