// The tables of what components know, in `data`.
//
//	table merge DATA VERSION FACTS   write what a version knows, from a file of facts, into the tables
//	table check DATA PROGRAM...      compare the tables with programs, and print each difference
//
// A table is a file NAME.tsv. Its first line has the versions that it covers, one of each minor version. Each other line has three
// columns: a name; its states, as MINOR:STATE from this minor version on, where `-` is unknown; and a text, which is that of the
// newest minor version that knows the name. The state of a feature gate names the gates that it needs, as needs=GATE.
package main

import (
	"fmt"
	"os"
)

func main() {
	var err error
	switch {
	case len(os.Args) == 5 && os.Args[1] == "merge":
		err = merge(os.Args[2], os.Args[3], os.Args[4])
	case len(os.Args) > 3 && os.Args[1] == "check":
		err = check(os.Args[2], os.Args[3:])
	default:
		err = fmt.Errorf("usage: table merge DATA VERSION FACTS, or table check DATA PROGRAM...")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
