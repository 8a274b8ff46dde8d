package facts

import (
	"os"
	"path/filepath"
	"regexp"
)

var (
	registered = regexp.MustCompile(`(?:globalflag\.R|pflagR)egister\(.*, "([^"]+)"\)`)
	deprecated = regexp.MustCompile(`MarkDeprecated\("([^"]+)", "([^"]+)"\)`)
)

// The flags of the cloud providers, which are part of Kubernetes up to 1.30. They are read from the sources, because the modules of
// the providers are not available in every version; `generate` compiles without them.
func printProviderFlags(component string) {
	app := filepath.Join(Source(), "cmd", component, "app")
	for _, folder := range []string{app, filepath.Join(app, "options")} {
		for _, path := range Must(filepath.Glob(filepath.Join(folder, "*flags_providers.go"))) {
			printProviderFlagsIn(component, path)
		}
	}
}

func printProviderFlagsIn(component, path string) {
	source := string(Must(os.ReadFile(path)))
	texts := map[string]string{}
	for _, match := range deprecated.FindAllStringSubmatch(source, -1) {
		texts[match[1]] = match[2]
	}
	for _, match := range registered.FindAllStringSubmatch(source, -1) {
		state := "string"
		if texts[match[1]] != "" {
			state = "string,deprecated,hidden"
		}
		Row(component, match[1], state, texts[match[1]])
	}
}
