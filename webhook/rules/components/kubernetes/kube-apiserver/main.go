// Prints what kube-apiserver knows, its admission plugins and its APIs.
package main

import (
	"fmt"
	"reflect"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	aggregator "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	admission "k8s.io/kubernetes/pkg/kubeapiserver/options"

	"kubectl-kcp.dev/components/facts"
)

func main() {
	facts.AddGates()
	flags := options.NewServerRunOptions().Flags()
	addCustomFlags(flags.FlagSet("generic"))
	facts.Print("kube-apiserver", facts.Named("kube-apiserver", flags))
	printAdmissionPlugins()
	printAPIs()
}

func printAdmissionPlugins() {
	off := admission.DefaultOffAdmissionPlugins()
	for _, name := range admission.NewAdmissionOptions().GenericAdmission.Plugins.Registered() {
		state := "on"
		if off.Has(name) {
			state = "off"
		}
		facts.Row("admission-plugins", name, state, "")
	}
}

// The group versions that kube-apiserver accepts in `--runtime-config`, and the kinds that it no longer serves from a version on.
func printAPIs() {
	for _, scheme := range []*runtime.Scheme{legacyscheme.Scheme, apiextensions.Scheme, aggregator.Scheme} {
		for _, version := range scheme.PrioritizedVersionsAllGroups() {
			facts.Row("apis", version.String(), "registered", "")
		}
		for kind, goType := range scheme.AllKnownTypes() {
			printLifecycle(kind, reflect.New(goType).Interface())
		}
	}
}

func printLifecycle(kind schema.GroupVersionKind, object any) {
	removed, ok := object.(interface{ APILifecycleRemoved() (int, int) })
	if !ok || strings.HasSuffix(kind.Kind, "List") {
		return
	}
	text := ""
	if replaced, ok := object.(interface {
		APILifecycleReplacement() schema.GroupVersionKind
	}); ok {
		text = replaced.APILifecycleReplacement().GroupVersion().String()
	}
	_, minor := removed.APILifecycleRemoved()
	facts.Row("kinds", kind.GroupVersion().String()+":"+kind.Kind, fmt.Sprint("removed=", minor), text)
}
