// The versions are in the other .mod files; see ../claimed-versions. Go looks for this one and does not read it.
module kubectl-kcp.dev/tests/envtest/support-matrix

go 1.26.0
