package lab

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/config/fabric"
	"github.com/loomfabric/loom/internal/namespace"
)

// child is a process that this loomlab started and will reap.
type child struct {
	name string // of the node
	log  string // what it printed
	cmd  *exec.Cmd
	done chan struct{} // closed once it has ended
}

// startIn starts a program in a node's namespace. log is the file that it prints to.
func (l *Lab) startIn(node, log string, cmd *exec.Cmd) error {
	// The child inherits the namespace of the thread that forks it.
	if err := namespace.Do(l.ns(node), cmd.Start); err != nil {
		return fmt.Errorf("start %s in %s: %w", filepath.Base(cmd.Path), node, err)
	}
	// It takes the place of one that has ended.
	l.children = slices.DeleteFunc(l.children, func(c *child) bool { return c.name == node && c.cmd.Path == cmd.Path && c.ended() })
	c := &child{name: node, log: log, cmd: cmd, done: make(chan struct{})}
	l.children = append(l.children, c)
	go func() {
		_ = cmd.Wait() // the exit status is in the log; deadDaemon reports the end
		close(c.done)
	}()
	return nil
}

// deadDaemon returns an error for a child that has ended.
func (l *Lab) deadDaemon() error {
	for _, c := range l.children {
		if c.ended() {
			return c.death()
		}
	}
	return nil
}

func (c *child) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// death is the error for a child that has ended.
func (c *child) death() error {
	return fmt.Errorf("%s in %s has ended: %s", filepath.Base(c.cmd.Path), c.name, lastLog(c.log))
}

// Exec replaces this process with a program inside a host, leaf or spine. Terminal,
// signals and exit code are the program's own. It returns only on failure.
func (l *Lab) Exec(node string, argv []string) (err error) {
	defer l.name(&err)
	_, known := l.Topo.Host(node)
	for _, n := range l.nodes() {
		known = known || n.Name == node
	}
	if !known {
		return fmt.Errorf("neither a host nor a leaf nor a spine is called %q", node)
	}
	if !l.IsUp() {
		return errDown
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

// startGuard starts a process that takes the lab down when this process dies too
// early to do it: by kill -9, a panic, or the machine's OOM killer. Its standard
// input is a pipe. Only release and the death of this process close it.
func (l *Lab) startGuard() (release func() error, err error) {
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
	return func() error {
		_, err := pipe.Write([]byte{'.'})
		pipe.Close()
		return errors.Join(err, cmd.Wait())
	}, nil
}

// Guard waits for its input to end. An empty input means that the process at the
// other end has died, and Guard takes down the lab with the given name.
func Guard(name string, in io.Reader) error {
	if n, _ := in.Read(make([]byte, 1)); n > 0 {
		return nil
	}
	return New(&fabric.File{Name: name}).Down()
}

// process is a process and a descriptor of it (pidfd_open(2)). Another process may
// have the number by now; a signal to the descriptor goes to the right one, or to
// none.
type process struct{ pid, fd int }

// processes opens all processes of the lab but this one: those inside its
// namespaces, and its daemons even if somebody has removed these.
func (l *Lab) processes(namespaces []string) (out []process, err error) {
	inodes := map[uint64]bool{}
	for _, ns := range namespaces {
		path := filepath.Join(namespace.Dir, ns)
		var st unix.Stat_t
		var fs unix.Statfs_t
		// An empty file left by a crash has an inode number of another file system.
		if unix.Stat(path, &st) == nil && unix.Statfs(path, &fs) == nil && fs.Type == unix.NSFS_MAGIC {
			inodes[st.Ino] = true
		}
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue // it has ended
		}
		var st unix.Stat_t
		args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		inside := unix.Stat(fmt.Sprintf("/proc/%d/ns/net", pid), &st) == nil && inodes[st.Ino]
		ours := bytes.Contains(args, []byte("\x00run\x00-c\x00"+l.dir()+"/")) || bytes.Contains(args, []byte("\x00--vty_socket\x00"+l.dir()+"/")) ||
			bytes.Contains(args, []byte("\x00"+strings.Join(l.webArguments(), "\x00")+"\x00"))
		if inside || ours {
			out = append(out, process{pid, fd})
		} else {
			unix.Close(fd)
		}
	}
	return out, nil
}

// endAll ends processes by SIGTERM, and by SIGKILL after grace. It returns when they
// have ended, and closes their descriptors.
func endAll(procs []process, grace time.Duration) error {
	for _, p := range procs {
		defer unix.Close(p.fd)
		_ = unix.PidfdSendSignal(p.fd, unix.SIGTERM, nil, 0) // ESRCH: gone already
	}
	deadline := time.Now().Add(grace)
	for _, p := range procs {
		if p.wait(time.Until(deadline)) {
			continue
		}
		_ = unix.PidfdSendSignal(p.fd, unix.SIGKILL, nil, 0) // ESRCH: gone after all
		if !p.wait(5 * time.Second) {
			return errors.New("a process of the lab survives SIGKILL: is it stuck in the kernel?")
		}
	}
	return nil
}

// wait waits until the process has ended: then its descriptor becomes readable.
func (p process) wait(timeout time.Duration) bool {
	deadline := time.Now().Add(timeout)
	for {
		ms := max(0, int(time.Until(deadline).Milliseconds()))
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}, ms)
		if !errors.Is(err, unix.EINTR) {
			return err == nil && n > 0
		}
	}
}
