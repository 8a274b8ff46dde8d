//! Access to a workload cluster's API server and, through it, to its pods.
//!
//! - [`Secret`]: the credentials for the workload cluster, in the management cluster
//! - [`ApiServer`]: the API server that a kubeconfig describes; [`ServingCertificate`]: its certificate
//! - [`ResponseLimit`]: the maximum size of a response
//! - [`Objects`]: reads objects, with limits on time and size
//! - [`PortForward`]: opens streams to a pod's port; [`ComponentServer`]: the HTTPS server behind the port

mod any_certificate;
pub mod component;
pub mod kubeconfig;
pub mod objects;
pub mod port_forward;
pub mod response_limit;
pub mod serving_certificate;

pub use crate::kubeconfig::KubeconfigFault;
pub use component::{ComponentError, ComponentResponse, ComponentServer, ComponentTls};
pub use kubeconfig::{ApiServer, KubeconfigError, api_server, client};
pub use objects::Objects;
pub use port_forward::PortForward;
pub use response_limit::ResponseLimit;
pub use serving_certificate::{ServingCertificate, ServingCertificateError, certificate_end};
