//! Checks, plans and change decisions for a `KubeadmControlPlane`. Every function is pure: it uses no client, clock or
//! terminal; callers pass the time.
//!
//! Each module uses only modules below it in this list, which a test checks.
//!
//! - [`webhook`]: whether the API server calls kcp-webhook, and the patches that disable and enable the webhook
//! - [`validation`]: the Pods that validate the Nodes of a cluster, and the result of each check
//! - [`bundle`]: the files of a debug bundle, without secrets
//! - [`component_log`]: the lines of the log of a component
//! - [`diagnosis`]: all that is known about one Machine
//! - [`why`]: who acts next on a control plane, since when, and why
//! - [`timeline`]: what happened to a control plane, in the order of time
//! - [`verbs`]: one decision for each command that writes
//! - [`wait`]: whether a change is complete, and what is still missing
//! - [`rollout_events`]: what Events say about a control plane and its deleted Machines
//! - [`release_changes`]: the API versions that a Kubernetes version no longer serves
//! - [`machine_image`]: whether the machines of an upgrade may get an old kubelet
//! - [`leader_migration`]: which controller manager runs each controller that can migrate, and under which lock
//! - [`inspection`], [`change`]: the verdict on a control plane, and whether the plugin may write a change
//! - [`drain`]: the pods that block the drain of a Machine's node, and the pods and data that the drain deletes
//! - [`audit`]: the checks of `kubectl kcp audit`
//! - [`checks`]: the checks of `kubectl kcp status`
//! - [`kubelet_skew`]: which kubelet versions an API server supports
//! - [`staleness`]: when a blocked change counts as stuck
//! - [`plan`]: the next steps of Cluster API's controller, and the blockers of the first step
//! - [`review`]: whether the admission rules permit a change
//! - [`ownership`]: who owns the fields that a patch writes
//! - [`merge_patch`]: JSON merge patches
//! - [`etcd_upgrade`]: whether a change brings etcd 3.6 too early
//! - [`topology`]: what Cluster API's topology controller waits for
//! - [`problem`]: the catalogue of problems, which words each of them
//! - [`join_times`]: how long Machines took to join
//! - [`duration`]: durations as text
//! - [`addon_update`]: whether the controller can update kube-proxy and `CoreDNS`
//! - [`snapshot`]: the state of the management cluster, the workload cluster and etcd at one time
//! - [`quorum`]: how many members etcd can lose after a change of its membership
//! - [`controller_release`]: the release of Cluster API's controller, and where its decisions differ from those of other releases

#![allow(
    missing_docs,
    reason = "fields and variants are documented only where the name does not say enough, such as the unit, what an \
        absent value means, or the source"
)]
#![allow(
    clippy::missing_errors_doc,
    reason = "each DecodeError describes itself: a field has the wrong type"
)]
#![cfg_attr(
    any(test, feature = "testing"),
    allow(
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::missing_panics_doc,
        clippy::panic,
        reason = "builders of test snapshots may panic"
    )
)]

pub mod addon_update;
pub mod audit;
pub mod bundle;
pub mod change;
pub mod checks;
pub mod component_log;
pub mod controller_release;
pub mod diagnosis;
pub mod drain;
pub mod duration;
pub mod etcd_upgrade;
pub mod inspection;
pub mod join_times;
pub mod kubelet_skew;
pub mod leader_migration;
pub mod machine_image;
pub mod merge_patch;
pub mod ownership;
pub mod plan;
pub mod problem;
pub mod quorum;
pub mod release_changes;
pub mod review;
pub mod rollout_events;
pub mod snapshot;
pub mod staleness;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod timeline;
pub mod topology;
pub mod validation;
pub mod verbs;
pub mod wait;
pub mod webhook;
pub mod why;

pub use snapshot::certificates;
