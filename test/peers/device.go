package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// device is a device under test. It encapsulates the frames that arrive on acc and
// sends them on upl.
type device interface {
	name() string
	// start sets the device up in the bed's dut namespace. It returns when it forwards.
	start(b *bench) error
	// processes lists the device's processes and kernel threads, by their pids.
	processes() []int
	// softirqReceive reports whether the device receives in a softirq on the
	// generator's core. The generator's time is corrected then.
	softirqReceive() bool
	stop() error
}

// kernelThreads lists kernel threads by the beginning of their name.
func kernelThreads(prefix string) ([]int, error) {
	paths, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, path := range paths {
		comm, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // ended meanwhile
		}
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(string(comm), prefix) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if err != nil {
				return nil, err
			}
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// bind binds threads to a core; 0 is the calling thread.
func bind(pids []int, core int) error {
	var set unix.CPUSet
	set.Set(core)
	for _, pid := range pids {
		if err := unix.SchedSetaffinity(pid, &set); err != nil {
			return fmt.Errorf("bind thread %d to core %d: %w", pid, core, err)
		}
	}
	return nil
}

// daemon is a process in the dut namespace.
type daemon struct {
	cmd *exec.Cmd
	log string
}

func startDaemon(b *bench, logName string, env []string, args ...string) (*daemon, error) {
	d := &daemon{log: filepath.Join(b.dir, logName)}
	out, err := os.Create(d.log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	d.cmd = exec.Command("ip", append([]string{"netns", "exec", b.ns("dut")}, args...)...)
	d.cmd.Env = append(os.Environ(), env...)
	d.cmd.Stdout, d.cmd.Stderr = out, out
	// A benchmark that is killed must not leave its daemons behind.
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := d.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", args[0], err)
	}
	return d, nil
}

func (d *daemon) pid() int { return d.cmd.Process.Pid } // ip replaces itself by the program

func (d *daemon) stop() error {
	if d == nil {
		return nil
	}
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- d.cmd.Wait() }()
	select {
	case err := <-done:
		var exit *exec.ExitError
		if errors.As(err, &exit) && !exit.Exited() {
			return nil // ended by our signal
		}
		return err
	case <-time.After(10 * time.Second):
		kill := d.cmd.Process.Kill()
		return errors.Join(fmt.Errorf("%s did not end within 10 s of SIGTERM", d.cmd.Args[4]), kill, <-done)
	}
}

// tail returns the end of the daemon's log, for error messages.
func (d *daemon) tail() string {
	data, err := os.ReadFile(d.log)
	if err != nil {
		return err.Error()
	}
	if len(data) > 1000 {
		data = data[len(data)-1000:]
	}
	return strings.TrimSpace(string(data))
}

func ready(what string, limit time.Duration, ok func() bool) error {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if ok() {
			return nil
		}
	}
	return fmt.Errorf("%s: not there after %v", what, limit)
}
