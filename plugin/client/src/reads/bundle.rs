//! Reads the objects of a debug bundle. They may contain secrets, so the caller redacts them before it stores any.
//!
//! - [`management`]: the objects in the management cluster
//! - [`workload`]: the objects in the workload cluster

pub mod management;
pub mod workload;

use kcp_control_plane::snapshot::Failure;
use serde_json::Value;

/// The objects of one file of a bundle, with `apiVersion` and `kind`. It has no `Debug`, because the objects may contain secrets.
pub struct ObjectList {
    /// The path of the file in the bundle.
    pub file: String,
    pub objects: Vec<Value>,
    /// The reads that failed. If there are objects too, only some reads failed.
    pub failures: Vec<Failure>,
}

impl ObjectList {
    fn new(file: &str, read: Result<Vec<Value>, Failure>) -> Self {
        let (objects, failures) = match read {
            Ok(objects) => (objects, Vec::new()),
            Err(failure) => (Vec::new(), vec![failure]),
        };
        Self {
            file: file.to_owned(),
            objects,
            failures,
        }
    }
}
