// Package facts prints what a component of one minor version of Kubernetes knows, as lines of four columns: FILE, NAME, STATE, TEXT.
package facts

import (
	"fmt"
	"log"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/pflag"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	metricsfeatures "k8s.io/component-base/metrics/features"
	"k8s.io/component-base/version/verflag"
	managerfeatures "k8s.io/controller-manager/pkg/features"

	// Adds flags.
	_ "k8s.io/component-base/logs/json/register"
)

// Source returns the folder of k8s.io/kubernetes, the second argument.
func Source() string { return os.Args[2] }

// Row prints a line.
func Row(file, name, state, text string) {
	fmt.Printf("%s\t%s\t%s\t%s\n", file, name, state, strings.Join(strings.Fields(text), " "))
}

// Must returns a value, or ends the program.
func Must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

// AddGates adds the feature gates that the component's `app` adds, because only its options are linked. If the first argument is
// true, these include the features of controller-manager.
func AddGates() {
	gates := utilfeature.DefaultMutableFeatureGate
	failures := []error{logsapi.AddFeatureGates(gates), metricsfeatures.AddFeatureGates(gates)}
	if os.Args[1] == "true" {
		failures = append(failures, managerfeatures.SetupCurrentKubernetesSpecificFeatureGates(gates))
	}
	for _, err := range failures {
		if err != nil {
			log.Fatal(err)
		}
	}
}

// Named joins the flags of a component's options and those that each command has, as the component's `app` does.
func Named(component string, named flag.NamedFlagSets) *pflag.FlagSet {
	verflag.AddFlags(named.FlagSet("global"))
	globalflag.AddGlobalFlags(named.FlagSet("global"), component, logs.SkipLoggingConfigurationFlags())
	flags := pflag.NewFlagSet(component, pflag.ContinueOnError)
	flags.SetNormalizeFunc(flag.WordSepNormalizeFunc)
	for _, set := range named.FlagSets {
		flags.AddFlagSet(set)
	}
	return flags
}

var deprecatedUsage = regexp.MustCompile(`(?is)^\W*(?:\w+\s+)?deprecated\b`)

// Print prints the flags and the feature gates.
func Print(component string, flags *pflag.FlagSet) {
	printProviderFlags(component)
	if flags.Lookup("help") == nil {
		flags.Bool("help", false, "")
	}
	flags.VisitAll(func(f *pflag.Flag) {
		text := f.Deprecated
		if text == "" && deprecatedUsage.MatchString(f.Usage) {
			text = f.Usage
		}
		state := strings.ReplaceAll(f.Value.Type(), " ", "")
		if text != "" {
			state += ",deprecated"
		}
		if f.Hidden {
			state += ",hidden"
		}
		Row(component, f.Name, state, text)
	})
	needed := dependencies()
	for name, spec := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		state := GateState(spec)
		for _, gate := range needed[name] {
			state += ",needs=" + string(gate)
		}
		Row("gates", component+":"+string(name), state, "")
	}
}

// The gates that a gate needs. Versions before 1.35 have no such method.
func dependencies() map[featuregate.Feature][]featuregate.Feature {
	if gates, ok := any(utilfeature.DefaultMutableFeatureGate).(interface {
		Dependencies() map[featuregate.Feature][]featuregate.Feature
	}); ok {
		return gates.Dependencies()
	}
	return nil
}

// GateState formats what a version says about a feature gate.
func GateState(spec featuregate.FeatureSpec) string {
	stage := strings.ToLower(string(spec.PreRelease))
	if stage == "" {
		stage = "ga"
	}
	state := fmt.Sprintf("%s,%t", stage, spec.Default)
	if spec.LockToDefault {
		state += ",locked"
	}
	return state
}
