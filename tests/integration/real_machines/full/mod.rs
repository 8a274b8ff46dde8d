//! Cluster API's control plane on real machines, for minutes: its unmodified bootstrap data turns each machine into a node.

mod cluster_api;
