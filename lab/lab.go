// Package lab builds a fabric on one machine and measures it. It makes leaves,
// spines and hosts of network namespaces, links of veth pairs, and addresses and
// routes in the kernel. It runs leafd and spined as processes, causes faults, and
// sends traffic between the hosts' own TCP stacks. It needs root. It must not know
// how frames are forwarded: the daemons do that, or the kernel for a baseline.
package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/config/fabric"
	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/namespace"
)

// Lab is one fabric on this machine. It is not safe for concurrent use.
type Lab struct {
	File *fabric.File
	Topo *fabric.Topology
	// Binaries is the folder of leafd and spined, which is searched before $PATH. If
	// it is empty, it is the running program's folder.
	Binaries string
	// BaseDir is the folder that relative file names in the fabric file start from.
	BaseDir string
	// Progress is where building and removing say how far they have come; nil: nowhere.
	Progress io.Writer

	children []*child // started by this process
}

// New prepares a lab of a checked fabric file. It does not touch the machine.
func New(f *fabric.File) *Lab { return &Lab{File: f, Topo: f.Expand()} }

// ErrUp is the error for a lab of a name that is up already.
var ErrUp = errors.New("is up already")

var errLeft = errors.New("something of it was left behind by an interrupted command: `loomlab down` removes it")

// errDown is the error for a lab that a command needs, and that was not built.
var errDown = errors.New("is not up: `loomlab up` starts it")

func (l *Lab) dir() string               { return filepath.Join(fabric.StateRoot, l.File.Name) }
func (l *Lab) path(name string) string   { return filepath.Join(l.dir(), name) }
func (l *Lab) ns(node string) string     { return "loom-" + l.File.Name + "-" + node }
func (l *Lab) kernel() bool              { return l.File.Dataplane == "kernel" }
func (l *Lab) lockPath() string          { return l.dir() + ".lock" }
func (l *Lab) socket(node string) string { return l.path(node + ".sock") }

// init keeps the main goroutine on the main thread, so that no other goroutine can
// change that thread's namespace. /proc/<pid>/ns is the main thread's, and the
// process counts as living there.
func init() { runtime.LockOSThread() }

// in runs fn in a node's namespace, on a thread of its own. An error names the node.
func (l *Lab) in(node string, fn func() error) error {
	if err := namespace.Do(l.ns(node), fn); err != nil {
		return fmt.Errorf("%s: %w", node, err)
	}
	return nil
}

// namespaces lists the namespaces of the lab. Lab names have no dash, so that the
// prefix of one lab is never the prefix of another.
func (l *Lab) namespaces() (out []string, err error) {
	paths, err := filepath.Glob(filepath.Join(namespace.Dir, l.ns("*")))
	for _, p := range paths {
		out = append(out, filepath.Base(p))
	}
	return out, err
}

// nodes returns the leaves, then the spines.
func (l *Lab) nodes() []fabric.Node { return slices.Concat(l.Topo.Leaves, l.Topo.Spines) }

func isLeaf(n fabric.Node) bool { return n.VTEP.IsValid() }

// port is one end of a leaf–spine link.
type port struct {
	link          int // its index
	Name          string
	addr, gateway netip.Addr // this end's, the other end's
	egress        vocab.Link
}

// ports lists a node's ends of leaf–spine links.
func (l *Lab) ports(n fabric.Node) (out []port) {
	for _, k := range l.Topo.Links {
		switch {
		case isLeaf(n) && k.Leaf == n.Index:
			out = append(out, port{k.Index, k.LeafPort, k.LeafAddr, k.SpineAddr, k.Up})
		case !isLeaf(n) && k.Spine == n.Index:
			out = append(out, port{k.Index, k.SpinePort, k.SpineAddr, k.LeafAddr, k.Down})
		}
	}
	return out
}

// members lists the hosts behind a leaf.
func (l *Lab) members(leaf int) (out []fabric.Host) {
	for _, h := range l.Topo.Hosts {
		if h.Leaf == leaf {
			out = append(out, h)
		}
	}
	return out
}

// others lists the other leaves that have hosts of a VNI.
func (l *Lab) others(leaf int, vni uint32) (vteps []netip.Addr) {
	for _, n := range l.Topo.Leaves {
		if n.Index != leaf && slices.Contains(l.Topo.VNIsOf(n.Index), vni) {
			vteps = append(vteps, n.VTEP)
		}
	}
	return vteps
}

// name says in an error which lab it is about.
func (l *Lab) name(err *error) {
	if *err != nil {
		*err = fmt.Errorf("lab %s: %w", l.File.Name, *err)
	}
}

// IsUp reports whether the lab has been built.
func (l *Lab) IsUp() bool {
	_, err := os.Stat(l.path(upMarker))
	return err == nil
}

// upMarker is written when everything has been set up.
const upMarker = "up"

// lock serialises the commands on one lab. A crash releases it.
func (l *Lab) lock() (unlock func(), err error) {
	if err := os.MkdirAll(fabric.StateRoot, 0o755); err != nil {
		return nil, fmt.Errorf("state directory: %w (are you root?)", err)
	}
	for {
		f, err := os.OpenFile(l.lockPath(), os.O_CREATE|os.O_RDWR, 0o644)
		if err == nil {
			err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		}
		if err != nil {
			return nil, fmt.Errorf("lock %s: %w", l.lockPath(), err)
		}
		// The previous holder may have removed the file. Then this lock is on a
		// file that no other process will find.
		mine, err1 := f.Stat()
		now, err2 := os.Stat(l.lockPath())
		if err1 == nil && err2 == nil && os.SameFile(mine, now) {
			return func() {
				if _, err := os.Stat(l.dir()); errors.Is(err, fs.ErrNotExist) {
					os.Remove(l.lockPath()) // without a lab; a waiting process opens a new one
				}
				f.Close()
			}, nil
		}
		f.Close()
	}
}

// Up builds the lab and starts its daemons. If it fails or ctx ends, it takes down
// what it has built. It returns [ErrUp] for a lab that exists already.
func (l *Lab) Up(ctx context.Context) (err error) {
	defer l.name(&err)
	return l.build(ctx, func() error { return nil })
}

// build is Up. It calls before when it has made sure that this process may build the
// lab, and before it builds anything.
func (l *Lab) build(ctx context.Context, before func() error) (err error) {
	unlock, err := l.lock()
	if err != nil {
		return err
	}
	defer unlock()
	left, err := l.namespaces()
	if err != nil {
		return err
	}
	if l.IsUp() {
		return ErrUp
	}
	if _, err := os.Stat(l.dir()); err == nil || len(left) > 0 {
		return errLeft
	}
	if err := l.checkHost(); err != nil {
		return err
	}
	if err := before(); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.down())
		}
	}()
	if err := os.MkdirAll(l.dir(), 0o755); err != nil {
		return err
	}
	if err := l.remember(); err != nil {
		return err
	}
	prog := newProgress(l.Progress)
	defer prog.End()
	for _, s := range l.steps() {
		if err := ctx.Err(); err != nil {
			return err
		}
		prog.step("%s", s.name)
		if err := s.do(ctx); err != nil {
			return err
		}
	}
	prog.say("%s is up", l.File.Name)
	return os.WriteFile(l.path(upMarker), nil, 0o644)
}

// step is a part of building a lab.
type step struct {
	name string
	do   func(context.Context) error
}

// steps returns what it takes to build the lab, in order.
func (l *Lab) steps() (all []step) {
	t := l.Topo
	add := func(do func(context.Context) error, format string, args ...any) {
		all = append(all, step{fmt.Sprintf(format, args...), do})
	}
	add(l.buildNodes, "making %d leaves and %d spines", len(t.Leaves), len(t.Spines))
	add(l.buildLinks, "making %d links", len(t.Links))
	add(l.buildHosts, "making %d hosts", len(t.Hosts))
	if l.frr() {
		add(l.startFRR, "starting FRR on %d nodes", len(t.Leaves)+len(t.Spines))
		add(l.converge, "waiting for FRR's routes")
	} else {
		add(l.converge, "setting routes")
	}
	if n := len(l.withDaemon()); n > 0 {
		add(l.startDataplane, "starting %d daemons, and waiting until they are ready", n)
	} else {
		add(l.startDataplane, "setting up the kernel's data plane")
	}
	return all
}

// checkHost checks the machine's requirements, and touches nothing.
func (l *Lab) checkHost() error {
	if os.Geteuid() != 0 {
		return errors.New("needs root for network namespaces: run it with sudo")
	}
	if l.frr() {
		if err := checkFRR(); err != nil {
			return err
		}
	}
	if l.kernel() {
		return nil
	}
	for _, b := range []string{"leafd", "spined"} {
		if _, err := l.binary(b); err != nil {
			return err
		}
	}
	return nil
}

// Down removes all that exists of the lab: its processes, namespaces and state. It
// succeeds if there is no lab.
func (l *Lab) Down() (err error) {
	defer l.name(&err)
	return l.remove()
}

// remove is Down. Its errors do not name the lab.
func (l *Lab) remove() error {
	if os.Geteuid() != 0 {
		return errors.New("needs root: run it with sudo")
	}
	unlock, err := l.lock()
	if err != nil {
		return err
	}
	defer unlock()
	return l.down()
}

// down is remove with the lock held.
func (l *Lab) down() error {
	namespaces, err := l.namespaces()
	if err != nil {
		return err
	}
	procs, err := l.processes(namespaces)
	errs := []error{err, endAll(procs, 3*time.Second)}
	for _, c := range l.children {
		<-c.done // reaped
	}
	l.children = nil
	prog := newProgress(l.Progress)
	defer prog.End()
	for i, ns := range namespaces {
		if i%16 == 0 {
			prog.step("removing namespace %d of %d", i+1, len(namespaces))
		}
		errs = append(errs, namespace.Delete(ns))
	}
	return errors.Join(append(errs, os.RemoveAll(l.dir()))...)
}
