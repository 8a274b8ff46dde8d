// Prints what kube-scheduler knows.
package main

import (
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"

	"kubectl-kcp.dev/components/facts"
)

func main() {
	facts.AddGates()
	facts.Print("kube-scheduler", facts.Named("kube-scheduler", *options.NewOptions().Flags))
}
