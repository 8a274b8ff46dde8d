//! About a minute each, with kubeadm alone; `.ci/run` runs them.

mod kubeadm;
mod leftovers;
