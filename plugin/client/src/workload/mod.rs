//! The workload cluster behind a control plane: reaching its API server and, through that, its pods.
//!
//! - [`Secret`]: what the management cluster keeps for it
//! - [`ApiServer`]: its API server, from a kubeconfig; [`ServingCertificate`]: as whom that one serves
//! - [`AnswerLimit`]: how much of an answer is read
//! - [`Objects`]: reads that end, whatever the server is like
//! - [`PortForward`]: the way to a pod's port

pub mod answer_limit;
pub mod kubeconfig;
pub mod objects;
pub mod port_forward;
pub mod serving_certificate;

pub use answer_limit::AnswerLimit;
pub use kubeconfig::{ApiServer, KubeconfigError, KubeconfigFault, api_server, client};
pub use objects::Objects;
pub use port_forward::PortForward;
pub use serving_certificate::{ServingCertificate, ServingCertificateError, certificate_end};
