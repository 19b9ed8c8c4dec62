package config

import (
	"github.com/loomfabric/loom/internal/yamlfile"
)

const help = "docs/config.md"

// Error is one mistake in a file: where it is, what it is and what to do.
type Error = yamlfile.Error

// Errors are all the mistakes that were found in a file.
type Errors = yamlfile.Errors

// LoadLeaf reads leafd's file, fills in defaults and validates it. Interfaces
// are the names of the machine's network interfaces; nil skips the checks that
// need them. The error, if any, is an [Errors].
func LoadLeaf(file string, interfaces []string) (*Leaf, error) {
	return readLeaf(yamlfile.Load(file, help, "a leafd configuration"), interfaces)
}

// LoadSpine is [LoadLeaf] for spined's file.
func LoadSpine(file string, interfaces []string) (*Spine, error) {
	return readSpine(yamlfile.Load(file, help, "a spined configuration"), interfaces)
}

// ParseLeaf is [LoadLeaf] for a file's contents; file is its name in errors.
func ParseLeaf(file string, src []byte, interfaces []string) (*Leaf, error) {
	return readLeaf(yamlfile.Parse(file, help, src), interfaces)
}

// ParseSpine is [LoadSpine] for a file's contents; file is its name in errors.
func ParseSpine(file string, src []byte, interfaces []string) (*Spine, error) {
	return readSpine(yamlfile.Parse(file, help, src), interfaces)
}

func readLeaf(d *yamlfile.Document, interfaces []string) (*Leaf, error) {
	l := DefaultLeaf()
	if d.Decode(l); len(d.Errs) == 0 {
		l.validate(d, interfaces)
	}
	if len(d.Errs) > 0 {
		return nil, d.Errs
	}
	l.fill()
	return l, nil
}

func readSpine(d *yamlfile.Document, interfaces []string) (*Spine, error) {
	s := DefaultSpine()
	if d.Decode(s); len(d.Errs) == 0 {
		s.validate(d, interfaces)
	}
	if len(d.Errs) > 0 {
		return nil, d.Errs
	}
	s.fill()
	return s, nil
}
