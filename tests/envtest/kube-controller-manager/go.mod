// The versions are in the other .mod files; see ../managers. Go looks for this one and does not read it.
module kubectl-kcp.dev/tests/envtest/kube-controller-manager

go 1.26.0
