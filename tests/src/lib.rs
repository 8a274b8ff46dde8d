//! A real control plane under test.
//!
//! [`management_cluster::ManagementCluster`] contains everything: etcd, kube-apiserver, Cluster API's three managers
//! and our admission webhook, with [`machines`] instead of a cloud. `tests/README.md` explains what is real and what is
//! not.

#![allow(
    missing_docs,
    reason = "only this workspace uses the harness: what needs an explanation has one"
)]

pub mod addresses;
pub mod admission;
pub mod api_server;
pub mod assets;
mod audit;
pub mod bench_report;
pub mod cluster;
pub mod cluster_api;
pub mod cluster_api_alone;
pub mod controller_manager;
pub mod etcd;
pub mod fault_socket;
pub mod fleet;
pub mod hive;
mod json_server;
pub mod kubeconfig;
pub mod kubectl;
pub mod load;
pub mod machines;
pub mod managed;
pub mod management_cluster;
pub mod manifests;
pub mod named_fault;
pub mod pki;
pub mod pools;
pub mod process;
pub mod products;
pub mod protected_pod;
pub mod refusing_webhook;
pub mod resources;
pub mod run;
pub mod runtime_extension;
pub mod s3;
pub mod volume;
pub mod wait;
pub mod workload_access;
