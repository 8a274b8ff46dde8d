// The versions are in the other .mod files; see ../build. Go looks for this one and does not read it.
module kubectl-kcp.dev/tests/envtest/leader-migration

go 1.26.0
