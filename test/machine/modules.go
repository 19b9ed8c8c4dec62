package machine

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// takeModules copies modules and all that they need out of lib/modules/VERSION.
// Those that are part of the kernel are left out.
func (k *Kernel) takeModules(from string, names []string) error {
	index, err := os.ReadFile(filepath.Join(from, "modules.dep"))
	if err != nil {
		return err
	}
	builtin, err := os.ReadFile(filepath.Join(from, "modules.builtin"))
	if err != nil {
		return err
	}
	files, err := moduleOrder(string(index), string(builtin), names)
	if err != nil {
		return fmt.Errorf("kernel %s: %w", k.Version, err)
	}
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(from, f))
		if err != nil {
			return err
		}
		if bytes.HasPrefix(data, magicXZ) {
			if data, err = filter(data, "xz", "-dc"); err != nil {
				return fmt.Errorf("module %s: %w", f, err)
			}
		}
		name := moduleName(f) + ".ko"
		if err := os.WriteFile(filepath.Join(k.Modules, name), data, 0o644); err != nil {
			return err
		}
		k.Order = append(k.Order, name)
	}
	return nil
}

// moduleName is how a module is called: its file's name without what follows the
// first dot, and without the choice between - and _.
func moduleName(file string) string {
	name, _, _ := strings.Cut(path.Base(file), ".")
	return strings.ReplaceAll(name, "-", "_")
}

// moduleOrder lists the files of modules and of what they need, each after all
// that it needs itself. index is modules.dep, builtin modules.builtin
// (modules.dep(5)).
func moduleOrder(index, builtin string, names []string) ([]string, error) {
	type entry struct {
		file  string
		needs []string
	}
	modules := map[string]entry{}
	for line := range strings.Lines(index) {
		file, needs, ok := strings.Cut(strings.TrimSpace(line), ":")
		if ok {
			modules[moduleName(file)] = entry{file, strings.Fields(needs)}
		}
	}
	inside := map[string]bool{}
	for _, f := range strings.Fields(builtin) {
		inside[moduleName(f)] = true
	}
	var order []string
	var add func(name string, trail []string) error
	add = func(name string, trail []string) error {
		m, ok := modules[name]
		switch {
		case inside[name] || slices.Contains(order, m.file):
			return nil
		case !ok:
			return fmt.Errorf("has no module %s", name)
		case slices.Contains(trail, name):
			return fmt.Errorf("module %s needs itself: %v", name, trail)
		}
		for _, n := range m.needs {
			if err := add(moduleName(n), append(trail, name)); err != nil {
				return err
			}
		}
		order = append(order, m.file)
		return nil
	}
	for _, n := range names {
		if err := add(moduleName(n), nil); err != nil {
			return nil, err
		}
	}
	return order, nil
}
