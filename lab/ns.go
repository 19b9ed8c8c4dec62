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

	"github.com/loomfabric/loom/internal/namespace"
)

// init keeps the main goroutine on the main thread, so that no other goroutine can
// change that thread's namespace. /proc/<pid>/ns is the main thread's, and the
// process counts as living there.
func init() { runtime.LockOSThread() }

// listNS lists the namespaces of a lab. Lab names have no dash, so that the prefix of
// one lab is never the prefix of another.
func listNS(lab string) ([]string, error) {
	entries, err := os.ReadDir(namespace.Dir)
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
