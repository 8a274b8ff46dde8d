package etcdmain

import (
	"flag"
	"fmt"
	"reflect"
	"regexp"
	"strings"
)

var deprecatedUsage = regexp.MustCompile(`(?i)([^.]* )?deprecated .*`)

// ExtractComponent prints the flags and feature gates of etcd as `facts.Print` does. `generate` adds this file to the package, because
// the flags are private. Reflection bridges the differences of the minor versions.
func ExtractComponent() {
	config := newConfig()
	texts := reflect.ValueOf(deprecatedFlags)
	config.cf.flagSet.VisitAll(func(f *flag.Flag) {
		state := kind(f.Value)
		text := deprecatedUsage.FindString(f.Usage)
		if listed := texts.MapIndex(reflect.ValueOf(f.Name)); listed.IsValid() {
			state += ",deprecated"
			if listed.Kind() == reflect.String {
				text = listed.String()
			}
		} else if text != "" {
			state += ",deprecated"
		}
		extracted("etcd", f.Name, state, text)
	})
	if gates := reflect.ValueOf(config.ec).FieldByName("ServerFeatureGate"); gates.IsValid() {
		extractGates(gates.Elem().MethodByName("GetAll").Call(nil)[0])
	}
}

// The type of a flag's value, as Go or etcd name it, in lower case and without `Value`. For the values that the flag accepts, it is one=A|B
// or, if the flag accepts a list of them, some=A|B.
func kind(value flag.Value) string {
	name := strings.ToLower(strings.TrimSuffix(reflect.TypeOf(value).Elem().Name(), "Value"))
	if list, ok := value.(interface{ Valids() []string }); ok {
		number := map[string]string{"selectivestring": "one", "selectivestrings": "some"}[name]
		return number + "=" + strings.Join(list.Valids(), "|")
	}
	return name
}

func extractGates(gates reflect.Value) {
	for entries := gates.MapRange(); entries.Next(); {
		spec := entries.Value()
		stage := strings.ToLower(spec.FieldByName("PreRelease").String())
		if stage == "" {
			stage = "ga"
		}
		state := fmt.Sprintf("%s,%t", stage, spec.FieldByName("Default").Bool())
		if spec.FieldByName("LockToDefault").Bool() {
			state += ",locked"
		}
		extracted("etcd-gates", entries.Key().String(), state, "")
	}
}

func extracted(file, name, state, text string) {
	fmt.Printf("%s\t%s\t%s\t%s\n", file, name, state, strings.Join(strings.Fields(text), " "))
}
