//go:build democloud

package main

// With `--cloud-provider=demo`, kube-controller-manager up to 1.30 runs the controllers of this cloud, as it ran those of the
// clouds in its own tree.
import _ "kubectl-kcp.dev/tests/envtest/kube-controller-manager/demo-cloud"
