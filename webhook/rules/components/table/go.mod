module kubectl-kcp.dev/components/table

go 1.26.0
