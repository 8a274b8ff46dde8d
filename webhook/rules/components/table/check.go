package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

var version = regexp.MustCompile(`(?:Kubernetes v|etcd Version: |^v)(\d+\.(\d+)\.\d+)`)

// A program of the tests.
type program struct {
	path, component, version string
	minor                    int
	data                     string
	differences              []string
}

// Compares the tables with programs, and with all programs in folders.
func check(data string, paths []string) error {
	programs, err := find(data, paths)
	if err != nil {
		return err
	}
	if len(programs) == 0 {
		return errors.New("no program is in these folders")
	}
	differences := 0
	for _, program := range programs {
		if err := program.check(); err != nil {
			return fmt.Errorf("checking %s: %w", program.path, err)
		}
		fmt.Printf("%s %s: %d differences\n", program.component, program.version, len(program.differences))
		for _, difference := range program.differences {
			fmt.Println("   ", difference)
		}
		differences += len(program.differences)
	}
	if differences > 0 {
		return fmt.Errorf("%d differences", differences)
	}
	return nil
}

// The programs in folders, one of each version.
func find(data string, folders []string) ([]*program, error) {
	found := map[string]*program{}
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.Name() == "containerd" && entry.IsDir() {
				return cmp.Or(err, fs.SkipDir)
			}
			known := append([]string{"etcd", "kubeadm"}, components...)
			if slices.Contains(known, entry.Name()) && entry.Type().IsRegular() {
				program, err := identify(data, path)
				if err != nil {
					return err
				}
				found[program.component+program.version] = program
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	var programs []*program
	for _, name := range slices.Sorted(maps.Keys(found)) {
		programs = append(programs, found[name])
	}
	return programs, nil
}

func identify(data, path string) (*program, error) {
	found := &program{path: path, component: filepath.Base(path), data: data}
	arguments := []string{"--version"}
	if found.component == "kubeadm" {
		arguments = []string{"version", "--output=short"}
	}
	output := found.run(arguments...)
	match := version.FindStringSubmatch(output)
	if match == nil {
		return nil, fmt.Errorf("%s %s does not print a version: %s", path, arguments, output)
	}
	found.version = match[1]
	var err error
	found.minor, err = minorOf(match[1])
	return found, err
}

// Both outputs of the program. It ends by itself, because its arguments are incomplete.
func (p *program) run(arguments ...string) string {
	limited, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	output, err := exec.CommandContext(limited, p.path, arguments...).CombinedOutput()
	if limited.Err() != nil {
		p.differ("it runs with %q: %v", arguments, err)
	}
	return string(output)
}

func (p *program) differ(format string, arguments ...any) {
	p.differences = append(p.differences, fmt.Sprintf(format, arguments...))
}

func (p *program) table(name string) (table, error) {
	found, err := read(p.data, name)
	if err == nil && found.versions[p.minor] == "" {
		err = fmt.Errorf("%s covers no version 1.%d", path(p.data, name), p.minor)
	}
	return found, err
}

func (p *program) check() error {
	if p.component == "kubeadm" {
		return p.checkListed("kubeadm-gates", "ga", listedGates(p.run("init", "--help")))
	}
	help := p.run("--help")
	err := p.checkFlags(help)
	switch p.component {
	case "etcd":
		return err
	case "kube-apiserver":
		err = errors.Join(err, p.checkListed("admission-plugins", "", listed(help, `(?s)list of admission plugins: (.*?)\.`)))
	case "kube-controller-manager":
		err = errors.Join(err, p.checkListed("controllers", "alias", listed(help, `(?s)All controllers: (.*?)\n\s*Disabled`)))
	}
	return errors.Join(err, p.checkGates(help))
}

var refusedFlag = regexp.MustCompile(`(?:unknown flag: --|flag provided but not defined: -)([\w-]+)`)

var helpFlag = regexp.MustCompile(`(?m)^\s+(?:-\w, )?--([a-zA-Z][\w-]*)`)

// The program is asked for each flag of the table, because its help does not have the hidden ones.
func (p *program) checkFlags(help string) error {
	flags, err := p.table(p.component)
	if err != nil {
		return err
	}
	for _, match := range helpFlag.FindAllStringSubmatch(help, -1) {
		if _, ok := flags.entries[match[1]]; !ok {
			p.differ("the help has --%s, the table does not", match[1])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(flags.entries)) {
		answer := refusedFlag.FindStringSubmatch(p.run("--"+name+"=1", "--help"))
		refused := answer != nil && answer[1] == name
		if refused == flags.knows(name, p.minor) {
			p.differ("--%s: the program knows it: %t; the table: %t", name, !refused, refused)
		}
	}
	return nil
}

// A list with spaces and line breaks in the help.
func listed(help, pattern string) map[string]string {
	names := map[string]string{}
	if match := regexp.MustCompile(pattern).FindStringSubmatch(help); match != nil {
		for name := range strings.SplitSeq(match[1], ",") {
			names[strings.TrimSpace(name)] = ""
		}
	}
	return names
}

var helpGate = regexp.MustCompile(`(?m)(?:kube:)?\b(\w+)=true\|false \((\w+) - default=(\w+)\)( if --min-compatibility-version)?`)

// The feature gates in the help, and their state but for locks, without --min-compatibility-version.
func listedGates(help string) map[string]string {
	gates := map[string]string{}
	for _, match := range helpGate.FindAllStringSubmatch(help, -1) {
		if match[4] == "" {
			gates[match[1]] = strings.ToLower(match[2]) + "," + match[3]
		}
	}
	return gates
}

// Compares what the help lists with a table, but for names whose state begins with `omitted`.
func (p *program) checkListed(name, omitted string, listed map[string]string) error {
	table, err := p.table(name)
	if err != nil {
		return err
	}
	for name, state := range listed {
		switch known := table.entries[name].states[p.minor]; {
		case known == "":
			p.differ("the help has %s, the table does not", name)
		case !strings.HasPrefix(known, state):
			p.differ("the help has %s as %s, the table as %s", name, state, known)
		}
	}
	for name, entry := range table.entries {
		state := entry.states[p.minor]
		if _, ok := listed[name]; !ok && state != "" && (omitted == "" || !strings.HasPrefix(state, omitted)) {
			p.differ("the table has %s, the help does not", name)
		}
	}
	slices.Sort(p.differences)
	return nil
}

// The help lists alpha and beta gates. The program is asked for the others, and whether gates are locked.
func (p *program) checkGates(help string) error {
	gates, err := p.table(sharedGates)
	if err != nil {
		return err
	}
	listed := listedGates(help)
	for name, state := range listed {
		if known := p.gate(gates, name); !strings.HasPrefix(known, state) {
			p.differ("the help has the gate %s as %s, the table as %q", name, state, known)
		}
	}
	for name := range splitByComponent(gates.entries) {
		if gate, ok := strings.CutPrefix(name, p.component+":"); ok {
			p.checkGate(gate, p.gate(gates, gate), listed[gate])
		}
	}
	slices.Sort(p.differences)
	return nil
}

// The state of a gate, or nothing if it is unknown.
func (p *program) gate(gates table, name string) string {
	return cmp.Or(gates.entries[name].states[p.minor], gates.entries[p.component+":"+name].states[p.minor])
}

func (p *program) checkGate(name, state, listed string) {
	if strings.HasPrefix(state, "alpha") || strings.HasPrefix(state, "beta") {
		if listed == "" && !strings.HasPrefix(name, "All") {
			p.differ("the table has the gate %s as %s, the help does not", name, state)
		}
	}
	changed := name + "=true"
	if strings.Contains(state, ",true") {
		changed = name + "=false"
	}
	// With this argument, the program ends after it has read the feature gates.
	end := "--logging-format=none"
	if p.component == "kubelet" {
		end = "--config=" + os.DevNull + "/absent"
	}
	output := p.run("--feature-gates="+changed, end)
	answer := "free"
	switch {
	case strings.Contains(output, "unrecognized feature gate"):
		answer = "unknown"
	case strings.Contains(output, "locked to"):
		answer = "locked"
	}
	expected := "free"
	switch {
	case state == "":
		expected = "unknown"
	case strings.Contains(state, ",locked"):
		expected = "locked"
	}
	if answer != expected {
		p.differ("the gate %s is %s, and %s in the table", name, answer, expected)
	}
}
