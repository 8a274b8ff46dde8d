// The versions are in the other .mod files; see ../old-etcd. Go looks for this one and does not read it.
module kubectl-kcp.dev/tests/envtest/etcd-3.5

go 1.26.0
