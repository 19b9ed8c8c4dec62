// Command reference writes docs/config.md and the JSON Schemas in docs/schema of
// the types that files are read into, their doc comments, and the descriptors of
// schemes. Run it at the top of the repository: go run ./internal/tools/reference
package main

import (
	"fmt"
	"log"
	"os"
	"path/filepath"
)

func main() {
	log.SetFlags(0)
	files, err := generate(".")
	if err != nil {
		log.Fatalf("reference: %v", err)
	}
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			log.Fatalf("reference: %v", err)
		}
		if err := os.WriteFile(name, text, 0o644); err != nil {
			log.Fatalf("reference: %v", err)
		}
	}
}

// generate returns the files that are made, by name; root is the top of the
// repository.
func generate(root string) (map[string][]byte, error) {
	c, err := readComments(root, "config", "config/vocab", "config/fabric", "sim", "balance", "reorder", "congestion")
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{"docs/config.md": page(c)}
	for name, s := range schemas(c) {
		if out["docs/schema/"+name+".json"], err = s.write(); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return out, nil
}
