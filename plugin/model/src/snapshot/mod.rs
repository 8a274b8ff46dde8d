//! What the three sources said of a control plane at one time: plain data, each part of which may be missing with a
//! reason.
//!
//! - [`reading`]: a part that was read, left out, or could not be read
//! - [`management`]: the management cluster
//! - [`workload`]: the workload cluster's API server
//! - [`etcd`]: etcd, each member by itself; [`member_consensus`]: which members to believe where they contradict each other

pub mod etcd;
pub mod management;
pub mod member_consensus;
pub mod reading;
pub mod workload;

pub use etcd::{EtcdSurvey, Unasked};
pub use management::Management;
pub use reading::{Failure, Reading};
pub use workload::{EndpointCertificate, Workload};

/// A control plane and what surrounds it, at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    pub management: Management,
    pub workload: Reading<Workload>,
    /// The serving certificate of its endpoint.
    pub endpoint_certificate: Reading<EndpointCertificate>,
    pub etcd: Reading<EtcdSurvey>,
}
