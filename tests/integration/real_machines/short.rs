//! About a minute each, with kubeadm alone; `.ci/run` runs them.

mod component_logs;
mod hosts;
mod kubeadm;
mod leftovers;
