// Command guest runs in a virtual machine of a test: it loads modules and then does what
// the host asks for (package proto). As the first process it mounts the file systems that
// programs expect, too; otherwise an init has done so.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/test/machine/proto"
)

func main() {
	err := setUp()
	if err != nil {
		fmt.Println("guest:", err)
	}
	for { // a connection ends when the host hangs up; the guest does not
		if perr := serve(err); perr != nil {
			fmt.Println("guest:", perr)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func setUp() error {
	if os.Getpid() == 1 {
		if err := mount(); err != nil {
			return err
		}
	}
	return loadModules()
}

func mount() error {
	for _, m := range []struct{ kind, at string }{
		{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"tmpfs", "/dev/shm"}, {"tmpfs", "/tmp"}, {"tmpfs", "/run"},
	} {
		if err := os.MkdirAll(m.at, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.at, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	return nil
}

func loadModules() error {
	list, err := os.ReadFile(proto.ModuleList)
	if err != nil {
		return err
	}
	for _, name := range strings.Fields(string(list)) {
		f, err := os.Open(filepath.Join(proto.ModuleDir, name))
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		f.Close()
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("load %s: %w", name, err)
		}
	}
	return nil
}

// openPort finds the serial port by its name.
func openPort() (*os.File, error) {
	names, err := filepath.Glob("/sys/class/virtio-ports/*/name")
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		text, err := os.ReadFile(n)
		if err == nil && strings.TrimSpace(string(text)) == proto.Port {
			return os.OpenFile("/dev/"+filepath.Base(filepath.Dir(n)), os.O_RDWR, 0)
		}
	}
	return nil, fmt.Errorf("no serial port is called %s", proto.Port)
}

// serve says whether the guest is ready and answers requests until the host
// hangs up.
func serve(ready error) error {
	port, err := openPort()
	if err != nil {
		return err
	}
	defer port.Close()
	var mu sync.Mutex
	enc := json.NewEncoder(port)
	answer := func(r proto.Reply) {
		mu.Lock()
		defer mu.Unlock()
		if err := enc.Encode(r); err != nil {
			fmt.Println("guest: reply:", err)
		}
	}
	hello := proto.Reply{}
	if ready != nil {
		hello.Err = ready.Error()
	}
	answer(hello)
	for dec := json.NewDecoder(port); ; {
		var req proto.Request
		if err := dec.Decode(&req); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read request: %w", err)
		}
		go func() { answer(perform(&req)) }()
	}
}

func perform(req *proto.Request) proto.Reply {
	switch {
	case req.Glob != "":
		return read(req)
	case req.Put != "":
		return write(req)
	}
	rep := proto.Reply{ID: req.ID}
	ctx, cancel := context.WithTimeout(context.Background(), req.Timeout)
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, req.Argv[0], req.Argv[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		rep.Err = err.Error()
		if ctx.Err() != nil {
			rep.Err = fmt.Sprintf("not over after %v", req.Timeout)
		}
	}
	rep.Output = out.String()
	return rep
}

func read(req *proto.Request) proto.Reply {
	rep := proto.Reply{ID: req.ID, Files: map[string]string{}}
	names, err := filepath.Glob(req.Glob)
	if err != nil {
		rep.Err = err.Error()
	}
	for _, n := range names {
		text, err := os.ReadFile(n)
		if err != nil {
			rep.Err = err.Error()
			break
		}
		rep.Files[filepath.Base(n)] = strings.TrimSpace(string(text))
	}
	return rep
}

func write(req *proto.Request) proto.Reply {
	rep := proto.Reply{ID: req.ID}
	if err := os.WriteFile(req.Put, []byte(req.Text), 0o644); err != nil {
		rep.Err = err.Error()
	}
	return rep
}
