package main

import (
	"os"
	"path/filepath"
	"testing"
)

// Merges facts of versions, and returns the table of gates.
func mergeAll(t *testing.T, versions map[string]string, order ...string) string {
	t.Helper()
	folder := t.TempDir()
	for _, version := range order {
		facts := filepath.Join(folder, "facts")
		if err := os.WriteFile(facts, []byte(versions[version]), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := merge(folder, version, facts); err != nil {
			t.Fatal(err)
		}
	}
	content, err := os.ReadFile(path(folder, sharedGates))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestMergeDoesNotDependOnTheOrder(t *testing.T) {
	gate := func(component, name, state, text string) string {
		return "gates\t" + component + ":" + name + "\t" + state + "\t" + text + "\n"
	}
	all := func(name, state, text string) (lines string) {
		for _, component := range components {
			lines += gate(component, name, state, text)
		}
		return lines
	}
	versions := map[string]string{
		"v1.29.6":  all("Old", "beta,true", "") + all("Same", "ga,true,locked", "first"),
		"v1.30.14": all("Same", "ga,true,locked", "second"),
		"v1.31.14": all("Same", "ga,true,locked", "third") + gate("kubelet", "Own", "alpha,false", "") + all("Old", "beta,true", ""),
	}
	expected := "# v1.29.6 v1.30.14 v1.31.14\n" +
		"Old\t29:beta,true 30:- 31:beta,true\t\n" +
		"Same\t29:ga,true,locked\tthird\n" +
		"kubelet:Own\t31:alpha,false\t\n"
	for _, order := range [][]string{
		{"v1.29.6", "v1.30.14", "v1.31.14"},
		{"v1.31.14", "v1.29.6", "v1.30.14", "v1.29.6"},
	} {
		if merged := mergeAll(t, versions, order...); merged != expected {
			t.Errorf("%v: %s", order, merged)
		}
	}
}

func TestANewPatchVersionReplacesTheOldOne(t *testing.T) {
	versions := map[string]string{
		"v1.29.6": "gates\tkubelet:A\talpha,false\t\n",
		"v1.29.7": "gates\tkubelet:B\talpha,false\t\n",
	}
	expected := "# v1.29.7\nkubelet:B\t29:alpha,false\t\n"
	if merged := mergeAll(t, versions, "v1.29.6", "v1.29.7"); merged != expected {
		t.Error(merged)
	}
}

func TestTablesAreAsTheyAreWritten(t *testing.T) {
	tables, err := filepath.Glob("../data/*.tsv")
	if err != nil || len(tables) == 0 {
		t.Fatal("no tables", err)
	}
	for _, file := range tables {
		name := filepath.Base(file[:len(file)-len(".tsv")])
		table, err := read("../data", name)
		if err != nil {
			t.Fatal(err)
		}
		folder := t.TempDir()
		if err := table.write(folder, name); err != nil {
			t.Fatal(err)
		}
		written, _ := os.ReadFile(path(folder, name))
		if content, _ := os.ReadFile(file); string(content) != string(written) {
			t.Errorf("%s differs from what is written after it was read", file)
		}
	}
}
