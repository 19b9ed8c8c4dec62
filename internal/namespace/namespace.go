// Package namespace makes, enters and removes named network namespaces, in the
// way of ip-netns(8). It must not configure interfaces, except for the loopback.
package namespace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Dir is the folder of the names. `ip netns` and `nsenter` see what is named there.
const Dir = "/run/netns"

// OnThread runs fn on an OS thread of its own and waits for it. The thread ends
// with fn: a thread with a changed namespace must not return to the Go scheduler.
// fn may end its goroutine; OnThread then returns nil.
func OnThread(fn func() error) (err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err = fn()
	}()
	<-done
	return err
}

// Do runs fn on a thread of its own inside the named namespace. Sockets and child
// processes that fn makes live in that namespace.
func Do(name string, fn func() error) error {
	return OnThread(func() error {
		if err := Enter(name); err != nil {
			return err
		}
		return fn()
	})
}

// DoOf runs fn as [Do] does, inside the namespace of a process.
func DoOf(pid int, fn func() error) error {
	return OnThread(func() error {
		h, err := netns.GetFromPid(pid)
		if err != nil {
			return fmt.Errorf("namespace of process %d: %w", pid, err)
		}
		defer h.Close()
		if err := netns.Set(h); err != nil {
			return fmt.Errorf("enter the namespace of process %d: %w", pid, err)
		}
		return fn()
	})
}

// NameOf returns the name of a process's namespace, and whether it is the calling
// process's own. The name is "" if nobody gave it one.
func NameOf(pid int) (name string, own bool, err error) {
	var of, self unix.Stat_t
	path := fmt.Sprintf("/proc/%d/ns/net", pid)
	if err := unix.Stat(path, &of); err != nil {
		return "", false, fmt.Errorf("namespace of process %d: %w", pid, err)
	}
	if err := unix.Stat("/proc/self/ns/net", &self); err != nil {
		return "", false, fmt.Errorf("this process's namespace: %w", err)
	}
	names, err := os.ReadDir(Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", false, err
	}
	for _, n := range names {
		var st unix.Stat_t
		if unix.Stat(filepath.Join(Dir, n.Name()), &st) == nil && st.Ino == of.Ino && st.Dev == of.Dev {
			name = n.Name()
		}
	}
	return name, of.Ino == self.Ino && of.Dev == self.Dev, nil
}

// Enter moves the calling thread, which must be locked, into the named namespace.
func Enter(name string) error {
	h, err := netns.GetFromName(name)
	if err != nil {
		return fmt.Errorf("namespace %s: %w", name, err)
	}
	defer h.Close()
	if err := netns.Set(h); err != nil {
		return fmt.Errorf("enter namespace %s: %w", name, err)
	}
	return nil
}

// Create makes a named namespace and sets its loopback up.
func Create(name string) error {
	err := OnThread(func() error {
		if err := shareNames(); err != nil {
			return err
		}
		h, err := netns.NewNamed(name)
		if err != nil {
			return err
		}
		defer h.Close()
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	})
	if err != nil {
		return fmt.Errorf("create namespace %s: %w", name, err)
	}
	return nil
}

// Delete removes the name; a name that does not exist is no error. The namespace
// and its interfaces go when no process is left inside.
func Delete(name string) error {
	path := filepath.Join(Dir, name)
	// EINVAL: not a mount point, left by a crash between creating and mounting.
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount namespace %s: %w", name, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove namespace %s: %w", name, err)
	}
	return nil
}

// shareNames makes Dir a shared mount point of its own, as the first `ip netns
// add` does. If ip did it later, it would mount over our names, and nobody could
// find or remove them. ip takes the same lock.
func shareNames() error {
	if err := os.MkdirAll(Dir, 0o755); err != nil {
		return err
	}
	dir, err := os.Open(Dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", Dir, err)
	}
	share := func() error { return unix.Mount("", Dir, "", unix.MS_SHARED|unix.MS_REC, "") }
	err = share()
	if errors.Is(err, unix.EINVAL) { // not a mount point yet
		if err = unix.Mount(Dir, Dir, "", unix.MS_BIND|unix.MS_REC, ""); err == nil {
			err = share()
		}
	}
	if err != nil {
		return fmt.Errorf("make %s a shared mount point: %w", Dir, err)
	}
	return nil
}
