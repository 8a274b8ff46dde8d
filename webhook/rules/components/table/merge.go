package main

import (
	"maps"
	"os"
	"slices"
	"strings"
)

// A line of facts.
type fact struct{ name, state, text string }

func merge(folder, version, facts string) error {
	minor, err := minorOf(version)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(facts)
	if err != nil {
		return err
	}
	known := map[string][]fact{"etcd": nil, "etcd-gates": nil}
	if strings.HasPrefix(version, "v1.") {
		known = map[string][]fact{}
	}
	for line := range strings.Lines(string(content)) {
		columns := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		known[columns[0]] = append(known[columns[0]], fact{columns[1], columns[2], columns[3]})
	}
	for name, facts := range known {
		merged, err := read(folder, name)
		if err != nil {
			return err
		}
		merged.versions[minor] = version
		if name == sharedGates {
			merged.entries = splitByComponent(merged.entries)
		}
		merged.replace(minor, facts)
		if name == sharedGates {
			merged.entries = joinComponents(merged.entries)
		}
		if err := merged.write(folder, name); err != nil {
			return err
		}
	}
	return nil
}

func (t table) replace(minor int, facts []fact) {
	for _, entry := range t.entries {
		delete(entry.states, minor)
	}
	for _, fact := range facts {
		changed, ok := t.entries[fact.name]
		if !ok {
			changed.states = map[int]string{}
		}
		changed.states[minor] = fact.state
		if minor == slices.Max(slices.Collect(maps.Keys(changed.states))) {
			changed.text = fact.text
		}
		t.entries[fact.name] = changed
	}
}

// The table of the feature gates, which are nearly the same for all components. A name stands for all components, and
// COMPONENT:NAME for one.
const sharedGates = "gates"

var components = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet"}

func splitByComponent(entries map[string]entry) map[string]entry {
	split := map[string]entry{}
	for name, shared := range entries {
		if strings.Contains(name, ":") {
			split[name] = shared
			continue
		}
		for _, component := range components {
			split[component+":"+name] = entry{maps.Clone(shared.states), shared.text}
		}
	}
	return split
}

func joinComponents(entries map[string]entry) map[string]entry {
	joined := map[string]entry{}
	for name, one := range entries {
		_, gate, _ := strings.Cut(name, ":")
		differs := slices.ContainsFunc(components, func(component string) bool {
			return !maps.Equal(entries[component+":"+gate].states, one.states)
		})
		if differs {
			joined[name] = one
		} else {
			joined[gate] = one
		}
	}
	return joined
}
