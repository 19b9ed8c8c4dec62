package netns

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/config/fabric"
	"github.com/loomfabric/loom/internal/testenv"
	"github.com/loomfabric/loom/internal/yamlfile"
	"github.com/loomfabric/loom/lab"
)

// A fab is a fabric of package lab that is up, with all that a test does to it.
type fab struct {
	t       *testing.T
	lab     *lab.Lab
	topo    *fabric.Topology
	dir     string // the lab's state: configurations, logs, sockets
	ns      map[string]*testenv.Namespace
	daemons map[string]*daemon // leaves and spines
}

var fabs atomic.Int64

// up builds the fabric of a file of this folder under a name of its own. When
// the test ends, every daemon's account must balance and no log may hold a
// panic or a data race.
func up(t *testing.T, file string) *fab { return upWith(t, file, func(*fabric.File) {}) }

// fastPath has XDP forward in a fabric what hosts send with checksums of their own.
func fastPath(f *fabric.File) { f.FastPath, f.Hosts.Checksums = "on", "host" }

// upWith is up for a fabric that differs from its file.
func upWith(t *testing.T, file string, change func(*fabric.File)) *fab {
	t.Helper()
	testenv.NeedRoot(t)
	file2, err := fabric.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	change(file2)
	file2.Name = fmt.Sprintf("n%d_%d", os.Getpid(), fabs.Add(1))
	l := lab.New(file2)
	l.Binaries = daemons
	if err := l.Up(context.Background()); err != nil {
		t.Fatal(err)
	}
	f := &fab{
		t: t, lab: l, topo: l.Topo, dir: filepath.Join("/run/loom/lab", file2.Name),
		ns: make(map[string]*testenv.Namespace), daemons: make(map[string]*daemon),
	}
	t.Cleanup(func() {
		if err := l.Down(); err != nil {
			t.Errorf("take the fabric down: %v", err)
		}
	})
	open := func(node string) {
		f.ns[node] = testenv.OpenNamespace(t, "loom-"+file2.Name+"-"+node)
	}
	for _, h := range f.topo.Hosts {
		open(h.Name)
	}
	for _, n := range f.topo.Leaves {
		open(n.Name)
		f.daemons[n.Name] = f.adopt("leafd", n.Name)
	}
	for _, n := range f.topo.Spines {
		open(n.Name)
		f.daemons[n.Name] = f.adopt("spined", n.Name)
	}
	t.Cleanup(f.verify)
	return f
}

// adopt makes a daemon that package lab started one of the test's.
func (f *fab) adopt(program, node string) *daemon {
	path := func(ext string) string { return filepath.Join(f.dir, node+ext) }
	d := &daemon{
		t: f.t, program: program, name: node, ns: f.ns[node],
		config: path(".yaml"), socket: path(".sock"), log: path(".log"),
	}
	text, err := os.ReadFile(path(".pid"))
	if err != nil {
		f.t.Fatal(err)
	}
	if _, err := fmt.Sscanf(string(text), `{"pid":%d}`, &d.pid); err != nil {
		f.t.Fatalf("%s: %v in %q", path(".pid"), err, text)
	}
	return d
}

// verify is the end of every test over a fabric.
func (f *fab) verify() {
	for _, d := range f.daemons {
		d.verify()
	}
}

func (f *fab) host(name string) fabric.Host {
	f.t.Helper()
	h, ok := f.topo.Host(name)
	if !ok {
		f.t.Fatalf("no host is called %s", name)
	}
	return h
}

// addr is a host's IPv4 address.
func (f *fab) addr(host string) netip.Addr { return f.host(host).Addr.Addr() }

// link returns a link's ends as "L0-S1.0" names it.
func (f *fab) link(name string) fabric.Link {
	f.t.Helper()
	l, ok := f.topo.Link(name)
	if !ok {
		f.t.Fatalf("no link is called %s", name)
	}
	return l
}

// edit rewrites a leafd's configuration and leaves the daemon alone.
func (f *fab) edit(leaf string, change func(*config.Leaf)) {
	f.t.Helper()
	d := f.daemons[leaf]
	text, err := os.ReadFile(d.config)
	if err != nil {
		f.t.Fatal(err)
	}
	c, err := config.ParseLeaf(d.config, text, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	change(c)
	if text, err = yamlfile.Marshal(c); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(d.config, text, 0o644); err != nil {
		f.t.Fatal(err)
	}
}

// reconfigure restarts a leafd with a changed configuration. The restart is an
// orderly one: SIGTERM, exit code 0.
func (f *fab) reconfigure(leaf string, change func(*config.Leaf)) {
	f.t.Helper()
	f.edit(leaf, change)
	d := f.daemons[leaf]
	d.stop()
	d.start()
	d.ready()
}

// access finds the configuration of a host's port.
func access(c *config.Leaf, h fabric.Host) *config.Access {
	for i := range c.Access {
		if c.Access[i].Interface == h.Port {
			return &c.Access[i]
		}
	}
	panic("no access port " + h.Port)
}

// routesWithout takes a port's next hops out of a node's routes, as a routing
// protocol does when the other side of the fabric has lost a link.
func (f *fab) routesWithout(node, port string) {
	f.t.Helper()
	index := f.ns[node].Link(f.t, port).Attrs().Index
	f.ns[node].Do(f.t, func() {
		routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
		if err != nil {
			f.t.Fatal(err)
		}
		for i := range routes {
			r := &routes[i]
			var left []*netlink.NexthopInfo
			for _, h := range r.MultiPath {
				if h.LinkIndex != index {
					left = append(left, h)
				}
			}
			if len(left) == len(r.MultiPath) || len(left) == 0 {
				continue
			}
			r.MultiPath = left
			if err := netlink.RouteReplace(r); err != nil {
				f.t.Fatalf("replace route %v in %s: %v", r, node, err)
			}
		}
	})
}

// route gives a node a route to a VTEP by one gateway.
func (f *fab) route(node string, vtep, gateway netip.Addr) {
	f.t.Helper()
	f.ns[node].Do(f.t, func() {
		dst := &net.IPNet{IP: vtep.AsSlice(), Mask: net.CIDRMask(32, 32)}
		err := netlink.RouteReplace(&netlink.Route{Dst: dst, Gw: gateway.AsSlice(), Protocol: unix.RTPROT_BGP})
		if err != nil {
			f.t.Fatalf("route to %v by %v in %s: %v", vtep, gateway, node, err)
		}
	})
}

// eventually calls ok until it returns "", which it must within the time.
func eventually(t *testing.T, within time.Duration, ok func() string) {
	t.Helper()
	deadline := time.Now().Add(within)
	for {
		problem := ok()
		if problem == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %v: %s", within, problem)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// lines returns the lines of a text that hold one of the words.
func lines(text string, words ...string) (found []string) {
	for line := range strings.Lines(text) {
		for _, w := range words {
			if strings.Contains(line, w) {
				found = append(found, strings.TrimSpace(line))
				break
			}
		}
	}
	return found
}
