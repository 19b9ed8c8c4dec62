package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// nsDir is where ip-netns(8) keeps named namespaces; using it makes a lab's
// visible to `ip netns` and `nsenter`.
const nsDir = "/run/netns"

// init keeps the main goroutine on the main thread. That thread cannot be thrown
// away: if another goroutine changed its namespace, the whole process would
// count as living there (/proc/<pid>/ns is the main thread's).
func init() { runtime.LockOSThread() }

// onThread runs fn on an OS thread of its own that is thrown away afterwards:
// a thread whose namespace was changed must not return to the Go scheduler.
func onThread(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		done <- fn()
	}()
	return <-done
}

// inNS runs fn on a thread inside the named namespace. What fn starts (sockets,
// child processes) lives in that namespace.
func inNS(name string, fn func() error) error {
	return onThread(func() error {
		if err := enterNS(name); err != nil {
			return err
		}
		return fn()
	})
}

// enterNS moves the calling thread, which must be locked.
func enterNS(name string) error {
	h, err := netns.GetFromName(name)
	if err != nil {
		return fmt.Errorf("namespace %s: %w (is the lab up?)", name, err)
	}
	defer h.Close()
	if err := netns.Set(h); err != nil {
		return fmt.Errorf("enter namespace %s: %w", name, err)
	}
	return nil
}

// shareNames makes nsDir a shared mount point of its own, as the first `ip netns
// add` does. Were that left to ip, it would later mount over our names: they
// could neither be found nor removed any more. ip takes the same lock.
func shareNames() error {
	if err := os.MkdirAll(nsDir, 0o755); err != nil {
		return err
	}
	dir, err := os.Open(nsDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", nsDir, err)
	}
	share := func() error { return unix.Mount("", nsDir, "", unix.MS_SHARED|unix.MS_REC, "") }
	err = share()
	if errors.Is(err, unix.EINVAL) { // not a mount point yet
		if err = unix.Mount(nsDir, nsDir, "", unix.MS_BIND|unix.MS_REC, ""); err == nil {
			err = share()
		}
	}
	if err != nil {
		return fmt.Errorf("make %s a shared mount point: %w", nsDir, err)
	}
	return nil
}

// createNS makes a named namespace with its loopback up.
func createNS(name string) error {
	err := onThread(func() error {
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

// deleteNS removes the name. The namespace itself, and every interface in it,
// goes when no process is left inside.
func deleteNS(name string) error {
	path := filepath.Join(nsDir, name)
	// EINVAL: not a mount point, left by a crash between creating and mounting.
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount namespace %s: %w", name, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove namespace %s: %w", name, err)
	}
	return nil
}

// listNS lists the namespaces of a lab. Lab names hold no dash, so that the
// prefix of one lab is never the prefix of another.
func listNS(lab string) ([]string, error) {
	entries, err := os.ReadDir(nsDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list namespaces: %w", err)
	}
	var out []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), nsPrefix(lab)) {
			out = append(out, e.Name())
		}
	}
	return out, nil
}

func nsPrefix(lab string) string { return "loom-" + lab + "-" }

// handle is a netlink socket inside a namespace.
type handle struct {
	*netlink.Handle
	ns   netns.NsHandle
	name string
}

// openNS opens netlink in a named namespace.
func openNS(name string) (*handle, error) {
	ns, err := netns.GetFromName(name)
	if err != nil {
		return nil, fmt.Errorf("namespace %s: %w (is the lab up?)", name, err)
	}
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		ns.Close()
		return nil, fmt.Errorf("netlink in namespace %s: %w", name, err)
	}
	return &handle{h, ns, name}, nil
}

// Close closes the socket and the namespace's descriptor.
func (h *handle) Close() {
	h.Handle.Close()
	h.ns.Close()
}

// sysctl writes a value below /proc/sys of the calling thread's namespace.
func sysctl(key, value string) error {
	path := filepath.Join("/proc/sys", strings.ReplaceAll(key, ".", "/"))
	if err := os.WriteFile(path, []byte(value), 0); err != nil {
		return fmt.Errorf("sysctl %s=%s: %w", key, value, err)
	}
	return nil
}
