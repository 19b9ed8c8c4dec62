package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"github.com/loomfabric/loom/internal/namespace"
)

// Exec replaces this process with a program inside a host, leaf or spine. Terminal,
// signals and exit code are the program's own. It returns only on failure.
func (l *Lab) Exec(node string, argv []string) error {
	known := false
	for _, n := range l.nodes() {
		known = known || n.Name == node
	}
	if _, ok := l.Topo.Host(node); !ok && !known {
		return l.named(fmt.Errorf("neither a host nor a leaf nor a spine is called %q", node))
	}
	if !l.IsUp() {
		return l.named(errors.New("is not up: `loomlab up` starts it"))
	}
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return err
	}
	// The program keeps the namespace of the thread that calls execve.
	runtime.LockOSThread()
	if err := namespace.Enter(l.ns(node)); err != nil {
		return err
	}
	if err := syscall.Exec(path, argv, os.Environ()); err != nil {
		return fmt.Errorf("run %s: %w", path, err)
	}
	return nil
}
