// Prints what the kubelet knows, and the feature gates of kubeadm.
package main

import (
	"github.com/spf13/pflag"

	"k8s.io/component-base/cli/flag"
	kubeadm "k8s.io/kubernetes/cmd/kubeadm/app/features"
	"k8s.io/kubernetes/cmd/kubelet/app/options"

	"kubectl-kcp.dev/components/facts"
)

func main() {
	facts.AddGates()
	flags := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	flags.SetNormalizeFunc(flag.WordSepNormalizeFunc)
	options.NewKubeletFlags().AddFlags(flags)
	options.AddKubeletConfigFlags(flags, facts.Must(options.NewKubeletConfiguration()))
	options.AddGlobalFlags(flags)
	facts.Print("kubelet", flags)
	for name, feature := range kubeadm.InitFeatureGates {
		facts.Row("kubeadm-gates", name, facts.GateState(feature.FeatureSpec), feature.DeprecationMessage)
	}
}
