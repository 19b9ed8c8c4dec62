package fabric

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"github.com/goccy/go-yaml"

	"github.com/loomfabric/loom/internal/yamlerr"
)

// Error is one thing that is wrong with a fabric file.
type Error = yamlerr.Error

// Load reads and checks the file at path.
func Load(path string) (*File, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("fabric file: %w", err)
	}
	return Parse(path, data)
}

// Parse checks data, fills in defaults and returns the model. name stands in
// for the file in errors. All errors of validation come at once, joined; each
// is an [*Error].
func Parse(name string, data []byte) (*File, error) {
	doc, err := yamlerr.Parse(name, data)
	if err != nil {
		return nil, err
	}
	f := &File{}
	dec := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict())
	if err := dec.Decode(f); err != nil {
		return nil, yamlerr.Wrap(name, err)
	}
	f.setDefaults()
	v := &validator{file: f, name: name}
	if len(doc.Docs) > 0 {
		v.root = doc.Docs[0].Body
	}
	v.run()
	if err := errors.Join(v.errs...); err != nil {
		return nil, err
	}
	return f, nil
}
