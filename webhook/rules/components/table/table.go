package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// What minor versions know.
type table struct {
	// The versions by minor version.
	versions map[int]string
	entries  map[string]entry
}

type entry struct {
	// The states by minor version. A minor version without a state does not know the name.
	states map[int]string
	text   string
}

const unknown = "-"

func minorOf(version string) (int, error) {
	parts := strings.Split(version, ".")
	if len(parts) < 3 {
		return 0, fmt.Errorf("%s is not a version", version)
	}
	return strconv.Atoi(parts[1])
}

func path(folder, name string) string { return filepath.Join(folder, name+".tsv") }

func (t table) minors() []int { return slices.Sorted(maps.Keys(t.versions)) }

func (t table) knows(name string, minor int) bool { return t.entries[name].states[minor] != "" }

func read(folder, name string) (table, error) {
	read := table{map[int]string{}, map[string]entry{}}
	content, err := os.ReadFile(path(folder, name))
	if errors.Is(err, fs.ErrNotExist) {
		return read, nil
	}
	header, rows, _ := strings.Cut(string(content), "\n")
	for _, version := range strings.Fields(strings.TrimPrefix(header, "#")) {
		minor, parsing := minorOf(version)
		read.versions[minor] = version
		err = errors.Join(err, parsing)
	}
	for line := range strings.Lines(rows) {
		columns := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		states, parsing := parseStates(columns[1], read.minors())
		read.entries[columns[0]] = entry{states, columns[2]}
		err = errors.Join(err, parsing)
	}
	return read, err
}

func parseStates(text string, minors []int) (map[int]string, error) {
	states := map[int]string{}
	for change := range strings.SplitSeq(text, " ") {
		from, state, _ := strings.Cut(change, ":")
		first, err := strconv.Atoi(from)
		if err != nil {
			return nil, err
		}
		for _, minor := range minors {
			if minor >= first {
				states[minor] = state
			}
		}
	}
	maps.DeleteFunc(states, func(_ int, state string) bool { return state == unknown })
	return states, nil
}

func (e entry) format(minors []int) string {
	var changes []string
	last := unknown
	for _, minor := range minors {
		if state := cmp.Or(e.states[minor], unknown); state != last {
			changes = append(changes, fmt.Sprintf("%d:%s", minor, state))
			last = state
		}
	}
	return strings.Join(changes, " ")
}

func (t table) write(folder, name string) error {
	minors := t.minors()
	var text strings.Builder
	text.WriteString("#")
	for _, minor := range minors {
		text.WriteString(" " + t.versions[minor])
	}
	text.WriteString("\n")
	for _, name := range slices.Sorted(maps.Keys(t.entries)) {
		if entry := t.entries[name]; len(entry.states) > 0 {
			fmt.Fprintf(&text, "%s\t%s\t%s\n", name, entry.format(minors), entry.text)
		}
	}
	return os.WriteFile(path(folder, name), []byte(text.String()), 0o644)
}
