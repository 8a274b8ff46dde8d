//! Admission webhook server.
fn main() {}
