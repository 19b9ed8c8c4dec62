package lab

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"github.com/loomfabric/loom/config/fabric"
)

// guard is a process that takes the lab down when this process dies too early to do
// it: by kill -9, a panic, or the machine's OOM killer.
type guard struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
}

// startGuard starts the guard. Its standard input is a pipe. Only release and the
// death of this process close it.
func (l *Lab) startGuard() (*guard, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, "guard", l.File.Name)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C is not for it
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start guard: %w", err)
	}
	return &guard{cmd, pipe}, nil
}

// release ends the guard.
func (g *guard) release() error {
	_, err := g.pipe.Write([]byte{'.'})
	g.pipe.Close()
	if werr := g.cmd.Wait(); err == nil {
		err = werr
	}
	return err
}

// Guard waits for its input to end. An empty input means that the process at the
// other end has died, and Guard takes down the lab with the given name.
func Guard(name string, in io.Reader) error {
	if n, _ := in.Read(make([]byte, 1)); n > 0 {
		return nil
	}
	return New(&fabric.File{Name: name}).Down()
}
