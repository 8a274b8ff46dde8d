//! Clusters on real machines, for minutes: Cluster API's unmodified bootstrap data, and the anchor of kcp-webhook.

mod anchor;
mod cluster_api;
