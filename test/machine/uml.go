package machine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// UserModeLinux downloads the suite's User Mode Linux, once for each of its versions, and
// takes the modules of these names with all that they need out of it. Vmlinux is a program
// of this machine; it needs no root.
func (s *Suite) UserModeLinux(modules ...string) (*Kernel, error) {
	const name = "user-mode-linux"
	out, err := s.apt("", "download", "--print-uris", name)
	if err != nil {
		return nil, err
	}
	f := strings.Fields(out) // 'URL' file size hash
	if len(f) < 2 || !strings.HasSuffix(f[1], ".deb") {
		return nil, fmt.Errorf("apt-get download --print-uris %s says %q, and names no package", name, out)
	}
	tree := s.path(strings.TrimSuffix(f[1], ".deb"))
	k := &Kernel{Vmlinux: filepath.Join(tree, "usr/bin/linux.uml"), Modules: filepath.Join(tree, "taken")}
	// The folder of the modules that are taken is made last.
	if _, err := os.Stat(k.Modules); errors.Is(err, os.ErrNotExist) {
		if err := s.unpack(tree, []string{name}); err != nil {
			return nil, err
		}
	}
	versions, err := filepath.Glob(filepath.Join(tree, "usr/lib/uml/modules/*"))
	if err != nil || len(versions) != 1 {
		return nil, fmt.Errorf("%s has the modules of %d kernels %v, want one: %w", f[1], len(versions), versions, err)
	}
	k.Version = filepath.Base(versions[0])
	if err := os.MkdirAll(k.Modules, 0o755); err != nil {
		return nil, err
	}
	return k, k.takeModules(versions[0], modules)
}
