//go:build custom_flags

package main

import (
	"github.com/spf13/pflag"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

// Up to 1.33, kube-apiserver adds some flags outside of its options.
func addCustomFlags(flags *pflag.FlagSet) { options.AddCustomGlobalFlags(flags) }
