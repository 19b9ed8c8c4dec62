package config

import (
	"github.com/loomfabric/loom/internal/yamlfile"
)

const help = "docs/config.md"

// LoadLeaf reads leafd's file, fills in defaults and validates it. Interfaces
// are the names of the machine's network interfaces; nil skips the checks that
// need them. The error, if any, is a [yamlfile.Errors].
func LoadLeaf(file string, interfaces []string) (*Leaf, error) {
	return read(yamlfile.Load(file, help, "a leafd configuration"), DefaultLeaf(), interfaces)
}

// LoadSpine is [LoadLeaf] for spined's file.
func LoadSpine(file string, interfaces []string) (*Spine, error) {
	return read(yamlfile.Load(file, help, "a spined configuration"), DefaultSpine(), interfaces)
}

// ParseLeaf is [LoadLeaf] for a file's contents; file is its name in errors.
func ParseLeaf(file string, src []byte, interfaces []string) (*Leaf, error) {
	return read(yamlfile.Parse(file, help, src), DefaultLeaf(), interfaces)
}

// ParseSpine is [LoadSpine] for a file's contents; file is its name in errors.
func ParseSpine(file string, src []byte, interfaces []string) (*Spine, error) {
	return read(yamlfile.Parse(file, help, src), DefaultSpine(), interfaces)
}

// node is a *Leaf or a *Spine.
type node interface {
	validate(*checker)
	fill()
}

// read completes a node's defaults by its file.
func read[N node](d *yamlfile.Document, n N, interfaces []string) (none N, err error) {
	if d.Decode(n); len(d.Errs) == 0 {
		c := checker{Document: d, interfaces: interfaces, used: make(map[string]string)}
		n.validate(&c)
		d.Report(c.Errors)
	}
	if len(d.Errs) > 0 {
		return none, d.Errs
	}
	n.fill()
	return n, nil
}
