//! Leases whose commands fail, checked against every version of every entry that etcd stored.

mod cleaning;
mod every_write;
mod exec_signals;
mod fault_proxy;
mod lessee_role;
mod naive;
mod queue;
mod random_runs;
mod several;
