//go:build !custom_flags

package main

import "github.com/spf13/pflag"

func addCustomFlags(*pflag.FlagSet) {}
