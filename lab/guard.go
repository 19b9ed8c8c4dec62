package lab

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"github.com/loomfabric/loom/config/fabric"
)

// guard is a process of its own that takes the lab down when this one dies
// without doing so itself: kill -9, a panic, the machine's OOM killer.
type guard struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
}

// startGuard starts it. Its standard input is a pipe that nothing but the
// death of this process, or release, closes.
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

// release tells the guard that it is not needed any more.
func (g *guard) release() error {
	_, err := g.pipe.Write([]byte{'.'})
	g.pipe.Close()
	if werr := g.cmd.Wait(); err == nil {
		err = werr
	}
	return err
}

// Guard waits for its input to end. If nothing came before, the process at the
// other end is dead, and Guard takes down the lab of that name.
func Guard(name string, in io.Reader) error {
	if n, _ := in.Read(make([]byte, 1)); n > 0 {
		return nil
	}
	return New(&fabric.File{Name: name}).Down()
}
