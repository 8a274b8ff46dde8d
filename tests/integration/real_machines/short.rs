//! About a minute each, with kubeadm alone; `.ci/run` runs them.

mod hosts;
mod kubeadm;
mod leftovers;
