package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/namespace"
)

// procID identifies a process for all time. Another process may have its pid by now.
type procID struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks after boot
}

// startTime is the 22nd field of /proc/<pid>/stat (proc(5)), in clock ticks.
func startTime(pid int) (uint64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The second field is the program's name in parentheses and may hold blanks.
	_, rest, ok := strings.Cut(string(b[strings.LastIndexByte(string(b), ')'):]), " ")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat: cannot be read", pid)
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

// open returns a pidfd of the process. It returns false if that has ended.
func (p procID) open() (int, bool) {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		return 0, false
	}
	// The descriptor pins the process. If the start time still matches, it is the
	// right process.
	if start, err := startTime(p.PID); err != nil || start != p.Start {
		unix.Close(fd)
		return 0, false
	}
	return fd, true
}

// endAll ends processes by SIGTERM, and by SIGKILL after grace. It returns when they
// have ended.
func endAll(procs []procID, grace time.Duration) error {
	var fds []int
	for _, p := range procs {
		if fd, ok := p.open(); ok {
			fds = append(fds, fd)
			_ = unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0) // ESRCH: gone already
		}
	}
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	deadline := time.Now().Add(grace)
	for _, fd := range fds {
		if waitGone(fd, time.Until(deadline)) {
			continue
		}
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) // ESRCH: gone after all
		if !waitGone(fd, 5*time.Second) {
			return errors.New("a process of the lab survives SIGKILL: is it stuck in the kernel?")
		}
	}
	return nil
}

// waitGone waits until a pidfd becomes readable, which it does when the process
// has ended.
func waitGone(fd int, timeout time.Duration) bool {
	deadline := time.Now().Add(timeout)
	for {
		ms := max(0, int(time.Until(deadline).Milliseconds()))
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, ms)
		if err == nil {
			return n > 0
		}
		if err != unix.EINTR {
			return false
		}
	}
}

// procsIn finds the processes in the named network namespaces. It also finds
// processes without a record: a daemon whose loomlab died right after the fork, or a
// program left behind by exec.
func procsIn(namespaces []string) ([]procID, error) {
	inodes := map[uint64]bool{}
	for _, ns := range namespaces {
		var st unix.Stat_t
		if unix.Stat(filepath.Join(namespace.Dir, ns), &st) == nil && isNSFS(ns) {
			inodes[st.Ino] = true
		}
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var out []procID
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		var st unix.Stat_t
		if unix.Stat(fmt.Sprintf("/proc/%d/ns/net", pid), &st) != nil || !inodes[st.Ino] {
			continue
		}
		if start, err := startTime(pid); err == nil {
			out = append(out, procID{pid, start})
		}
	}
	return out, nil
}

// isNSFS reports whether the name is a mounted namespace. An empty file left by a
// crash has an inode number of another file system.
func isNSFS(ns string) bool {
	var st unix.Statfs_t
	return unix.Statfs(filepath.Join(namespace.Dir, ns), &st) == nil && st.Type == unix.NSFS_MAGIC
}

// recordProc writes a process's identity to the state folder.
func (l *Lab) recordProc(name string, pid int) error {
	start, err := startTime(pid)
	if err != nil {
		return fmt.Errorf("%s ended at once: see %s", name, l.path(name+".log"))
	}
	b, err := json.Marshal(procID{pid, start})
	if err != nil {
		return err
	}
	return os.WriteFile(l.path(name+".pid"), b, 0o644)
}

// recordedProcs reads what recordProc wrote.
func (l *Lab) recordedProcs() ([]procID, error) {
	files, err := filepath.Glob(l.path("*.pid"))
	if err != nil {
		return nil, err
	}
	var out []procID
	for _, f := range files {
		b, err := os.ReadFile(f)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var p procID
		// A half-written record (killed while writing) is no loss: the process is
		// found by its namespace.
		if json.Unmarshal(b, &p) == nil {
			out = append(out, p)
		}
	}
	return out, nil
}
