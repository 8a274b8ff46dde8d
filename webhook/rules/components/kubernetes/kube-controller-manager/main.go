// Prints what kube-controller-manager knows, and its controllers.
package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"log"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/kubernetes/cmd/kube-controller-manager/app/options"

	"kubectl-kcp.dev/components/facts"
)

func main() {
	facts.AddGates()
	flags := facts.Must(options.NewKubeControllerManagerOptions()).Flags(nil, nil, nil)
	facts.Print("kube-controller-manager", facts.Named("kube-controller-manager", flags))
	printControllers(facts.Source())
}

// The controllers of kube-controller-manager, and their aliases. They are read from the sources, because linking them takes as long as
// building kube-controller-manager.
func printControllers(folder string) {
	app := filepath.Join(folder, "cmd/kube-controller-manager/app")
	names := constants(filepath.Join(folder, "cmd/kube-controller-manager/names"), "names")
	for name, value := range constants(os.Getenv("CLOUD_PROVIDER_NAMES"), "cpnames") {
		names[name] = value
	}
	for _, file := range parse(app) {
		ast.Inspect(file, func(node ast.Node) bool {
			if literal, ok := node.(*ast.CompositeLit); ok {
				printController(literal, names)
			}
			return true
		})
	}
}

func printController(literal *ast.CompositeLit, names map[string]string) {
	var name string
	var aliases []string
	for _, element := range literal.Elts {
		field, ok := element.(*ast.KeyValueExpr)
		if !ok {
			return
		}
		switch key, _ := field.Key.(*ast.Ident); {
		case key == nil:
			return
		case key.Name == "name":
			if selector, ok := field.Value.(*ast.SelectorExpr); ok {
				name = names[selector.X.(*ast.Ident).Name+"."+selector.Sel.Name]
			}
		case key.Name == "aliases":
			aliases = texts(field.Value)
		}
	}
	if name != "" {
		facts.Row("controllers", name, "known", "")
		for _, alias := range aliases {
			facts.Row("controllers", alias, "alias", name)
		}
	}
}

func texts(list ast.Expr) (texts []string) {
	ast.Inspect(list, func(node ast.Node) bool {
		if literal, ok := node.(*ast.BasicLit); ok {
			texts = append(texts, facts.Must(strconv.Unquote(literal.Value)))
		}
		return true
	})
	return texts
}

// The text constants of a package, as PREFIX.NAME.
func constants(folder, prefix string) map[string]string {
	found := map[string]string{}
	for _, file := range parse(folder) {
		ast.Inspect(file, func(node ast.Node) bool {
			spec, ok := node.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 {
				return true
			}
			if value := texts(spec.Values[0]); len(value) == 1 {
				found[prefix+"."+spec.Names[0].Name] = value[0]
			}
			return true
		})
	}
	if len(found) == 0 {
		log.Fatalf("%s has no constants", folder)
	}
	return found
}

func parse(folder string) (files []*ast.File) {
	for _, path := range facts.Must(filepath.Glob(filepath.Join(folder, "*.go"))) {
		if !strings.HasSuffix(path, "_test.go") {
			files = append(files, facts.Must(parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)))
		}
	}
	return files
}
