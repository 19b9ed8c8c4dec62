package fabric

import (
	"github.com/loomfabric/loom/internal/yamlfile"
)

// Load reads and checks the file at path. The error, if any, is a
// [yamlfile.Errors] of all that is wrong.
func Load(path string) (*File, error) {
	return read(yamlfile.Load(path, help, "a fabric file"))
}

// Parse is [Load] for a file's contents; name stands in for the file in errors.
func Parse(name string, data []byte) (*File, error) {
	return read(yamlfile.Parse(name, help, data))
}

// Source is the text that the file was read from.
func (f *File) Source() string { return f.doc.Source() }

func read(d *yamlfile.Document) (*File, error) {
	f := &File{doc: d}
	if d.Decode(f); len(d.Errs) == 0 {
		f.setDefaults()
		v := validator{file: f, Document: d}
		v.run()
		d.Report(v.Errors)
	}
	if len(d.Errs) > 0 {
		return nil, d.Errs
	}
	return f, nil
}
