// leader-migration prints what one version of Kubernetes makes of leader migration configurations.
//
// Standard input and output are JSON. The input names the texts of configuration files, and controllers. Each text passes
// through the same functions as the file of --leader-migration-config, and an empty text is a flag without a value. The
// version is that of k8s.io/controller-manager in the .mod file with which this program is built.
package main

import (
	"encoding/json"
	"log"
	"os"
	"path/filepath"

	"k8s.io/controller-manager/config"
	"k8s.io/controller-manager/pkg/leadermigration"
	"k8s.io/controller-manager/pkg/leadermigration/options"
)

type input struct {
	Texts       []string `json:"texts"`
	Components  []string `json:"components"`
	Controllers []string `json:"controllers"`
}

type result struct {
	Error        string `json:"error,omitempty"`
	LeaderName   string `json:"leaderName,omitempty"`
	ResourceLock string `json:"resourceLock,omitempty"`
	// Filters has a word per controller for each component.
	Filters [][]string `json:"filters,omitempty"`
}

var words = map[leadermigration.FilterResult]string{
	leadermigration.ControllerUnowned:     "unowned",
	leadermigration.ControllerMigrated:    "migrated",
	leadermigration.ControllerNonMigrated: "non-migrated",
}

func main() {
	var in input
	if err := json.NewDecoder(os.Stdin).Decode(&in); err != nil {
		log.Fatal(err)
	}
	folder, err := os.MkdirTemp("", "leader-migration")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	file := filepath.Join(folder, "configuration.yaml")
	results := make([]result, 0, len(in.Texts))
	for _, text := range in.Texts {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			log.Fatal(err)
		}
		flags := options.LeaderMigrationOptions{Enabled: true}
		if text != "" {
			flags.ControllerMigrationConfig = file
		}
		results = append(results, in.read(flags))
	}
	if err := json.NewEncoder(os.Stdout).Encode(results); err != nil {
		log.Fatal(err)
	}
}

func (in *input) read(flags options.LeaderMigrationOptions) result {
	var generic config.GenericControllerManagerConfiguration
	if err := flags.ApplyTo(&generic); err != nil {
		return result{Error: err.Error()}
	}
	migration := &generic.LeaderMigration
	read := result{LeaderName: migration.LeaderName, ResourceLock: migration.ResourceLock}
	for _, component := range in.Components {
		filter := leadermigration.NewLeaderMigrator(migration, component).FilterFunc
		filters := make([]string, 0, len(in.Controllers))
		for _, controller := range in.Controllers {
			filters = append(filters, words[filter(controller)])
		}
		read.Filters = append(read.Filters, filters)
	}
	return read
}
