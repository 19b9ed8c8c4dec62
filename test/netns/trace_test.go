package netns

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/loomfabric/loom/config/fabric"
	"github.com/loomfabric/loom/internal/loomctl"
)

// device is an interface of a node.
type device struct{ node, name string }

// moved is what the kernel has counted at a device, in bytes.
type moved struct{ rx, tx uint64 }

// devices returns what the kernels of all nodes have counted.
func (f *fab) devices() map[device]moved {
	f.t.Helper()
	all := make(map[device]moved)
	for node := range f.daemons {
		f.ns[node].Do(f.t, func() {
			links, err := netlink.LinkList()
			if err != nil {
				f.t.Fatal(err)
			}
			for _, l := range links {
				a := l.Attrs()
				all[device{node, a.Name}] = moved{a.Statistics.RxBytes, a.Statistics.TxBytes}
			}
		})
	}
	return all
}

// labctl runs loomctl for all nodes of the fabric.
func (f *fab) labctl(args ...string) (string, error) {
	var out bytes.Buffer
	c := loomctl.Command(&out)
	c.SetErr(&out)
	c.SetArgs(append([]string{"--lab", f.lab.File.Name}, args...))
	err := c.Execute()
	return out.String(), err
}

// tracedFlow asks for a flow's way, which has to be certain.
func (f *fab) tracedFlow(args ...string) loomctl.Way {
	f.t.Helper()
	out, err := f.labctl(append([]string{"-o", "json", "trace"}, args...)...)
	if err != nil {
		f.t.Fatalf("trace %v: %v\n%s", args, err, out)
	}
	var x loomctl.Trace
	if err := json.Unmarshal([]byte(out), &x); err != nil {
		f.t.Fatal(err)
	}
	if len(x.Ways) != 1 || x.Ways[0].End != "arrives" || len(x.Silent) > 0 {
		f.t.Fatalf("trace %v: %s", args, out)
	}
	return x.Ways[0]
}

const (
	traceDatagrams = 8
	traceSize      = 1200
	traceLeast     = traceDatagrams * traceSize // bytes that a flow's way has moved
)

// sendFlow sends a flow's datagrams and waits until all have come.
func (f *fab) sendFlow(src, dst fabric.Host, sport, dport int) {
	f.t.Helper()
	listen := func(h fabric.Host, port int) (c *net.UDPConn) {
		f.ns[h.Name].Do(f.t, func() {
			var err error
			if c, err = net.ListenUDP("udp4", &net.UDPAddr{IP: h.Addr.Addr().AsSlice(), Port: port}); err != nil {
				f.t.Fatal(err)
			}
		})
		return c
	}
	from, to := listen(src, sport), listen(dst, dport)
	defer from.Close()
	defer to.Close()
	for range traceDatagrams {
		if _, err := from.WriteToUDP(make([]byte, traceSize), &net.UDPAddr{IP: dst.Addr.Addr().AsSlice(), Port: dport}); err != nil {
			f.t.Fatal(err)
		}
	}
	if err := to.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		f.t.Fatal(err)
	}
	for i := range traceDatagrams {
		if _, _, err := to.ReadFromUDP(make([]byte, 2*traceSize)); err != nil {
			f.t.Fatalf("datagram %d of %d from %s to %s: %v", i+1, traceDatagrams, src.Name, dst.Name, err)
		}
	}
}

// settles waits until ways no longer change because the fabric has just begun: spines know the
// MAC addresses of all next hops, and leaves that all paths deliver.
func (f *fab) settles() {
	f.t.Helper()
	eventually(f.t, 10*time.Second, func() string {
		for _, n := range f.topo.Spines {
			if routes := f.daemons[n.Name].loomctl("routes"); strings.Contains(routes, "unresolved") || strings.Contains(routes, "none") {
				return n.Name + " has yet to find a next hop:\n" + routes
			}
		}
		for _, n := range f.topo.Leaves {
			want := uint64(len(f.topo.Leaves)-1) * uint64(len(f.topo.Links)/len(f.topo.Leaves))
			if alive := f.daemons[n.Name].metric("loom_path_alive"); alive != want {
				return fmt.Sprintf("%s has %d paths that deliver, want %d", n.Name, alive, want)
			}
		}
		return ""
	})
}

// TestTrace: a hundred random flows take the ways that trace says: the kernel counts their
// bytes at each device of these ways, in and out, and at no other.
func TestTrace(t *testing.T) {
	f := up(t, "trace.yaml")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	hosts := f.topo.Hosts
	for i := range hosts { // its ARP requests go to all leaves, which know it then
		f.sendFlow(hosts[i], hosts[(i+2)%len(hosts)], 7000, 7000)
	}
	f.settles()
	agree, ways := 0, make(map[string]bool)
	for range 100 {
		i := rng.IntN(len(hosts))
		j := (i + 1 + rng.IntN(len(hosts)-1)) % len(hosts)
		src, dst := hosts[i], hosts[j]
		sport, dport := 10000+rng.IntN(40000), 10000+rng.IntN(20000)
		w := f.tracedFlow(src.Name, dst.Name, "udp", strconv.Itoa(sport), strconv.Itoa(dport))
		before := f.devices()
		f.sendFlow(src, dst, sport, dport)
		after := f.devices()
		in, out, text := make(map[device]bool), make(map[device]bool), ""
		for _, h := range w.Hops {
			in[device{h.Node, h.In}], out[device{h.Node, h.Out}] = true, true
			text += fmt.Sprintf(" %s>%s>%s", h.In, h.Node, h.Out)
		}
		var wrong []string
		for d, m := range after {
			rx, tx := m.rx-before[d].rx >= traceLeast, m.tx-before[d].tx >= traceLeast
			if rx != in[d] || tx != out[d] {
				wrong = append(wrong, fmt.Sprintf("%s of %s moved in: %v, out: %v", d.name, d.node, rx, tx))
			}
		}
		if len(wrong) == 0 {
			agree++
			ways[text] = true
			continue
		}
		slices.Sort(wrong)
		t.Errorf("%s to %s, ports %d to %d, should go%s: %s", src.Name, dst.Name, sport, dport, text, strings.Join(wrong, "; "))
	}
	t.Logf("%d of 100 flows took the way that was said, by %d ways", agree, len(ways))
	if len(ways) < 30 {
		t.Errorf("all went by %d ways", len(ways))
	}
	f.traceFromAnnouncements(hosts[0], hosts[2])
	f.namesElsewhere(hosts[0], hosts[2])
	f.traceSaysDrops(hosts[0], hosts[2])
}

// traceFromAnnouncements: what stations have announced stands in for names and --dst-mac.
func (f *fab) traceFromAnnouncements(src, dst fabric.Host) {
	f.t.Helper()
	ip, peer := src.Addr.Addr().String(), dst.Addr.Addr().String()
	leaf := f.topo.Leaves[src.Leaf].Name
	text := f.daemons[leaf].loomctl("hosts")
	if !strings.Contains(text, ip+" ") || !strings.Contains(text, peer+" ") {
		f.t.Errorf("%s has not seen %s and %s announced:\n%s", leaf, ip, peer, text)
	}
	text = f.daemons[leaf].loomctl("explain", ip, peer, "udp", "7", "7")
	if !strings.Contains(text, "announced") || !strings.Contains(text, "takes uplink") {
		f.t.Errorf("without --dst-mac %s explains\n%s", leaf, text)
	}
}

// namesElsewhere: explain and capture take the names of hosts that trace takes.
func (f *fab) namesElsewhere(src, dst fabric.Host) {
	f.t.Helper()
	leaf := f.topo.Leaves[src.Leaf].Name
	if out, err := f.labctl("--node", leaf, "explain", src.Name, dst.Name, "udp", "7", "7"); err != nil || !strings.Contains(out, "takes uplink") {
		f.t.Errorf("explain %s %s: %v\n%s", src.Name, dst.Name, err, out)
	}
	if out, err := f.labctl("--node", leaf, "capture", "--flow", src.Name+","+dst.Name+",udp", "--time", "100ms"); err != nil || !strings.Contains(out, "0 frames captured") {
		f.t.Errorf("capture --flow %s,%s: %v\n%s", src.Name, dst.Name, err, out)
	}
	if out, err := f.labctl("--node", leaf, "capture", "--flow", src.Name+",nobody", "--time", "100ms"); err == nil || !strings.Contains(err.Error(), `"nobody" is neither an IP nor a MAC address`) {
		f.t.Errorf("capture of nobody: %v\n%s", err, out)
	}
}

// traceSaysDrops: spines without a route, and nodes that do not answer, are named.
func (f *fab) traceSaysDrops(src, dst fabric.Host) {
	t := f.t
	t.Helper()
	far := f.topo.Leaves[dst.Leaf].Name
	for _, spine := range f.topo.Spines {
		defer f.dropRoute(spine.Name, dst.Leaf)()
	}
	eventually(t, 5*time.Second, func() string {
		out, err := f.labctl("trace", src.Name, dst.Name, "udp", "7", "7")
		if loomctl.ExitCode(err) != 1 || !strings.Contains(out, "it is dropped (no_route): S") {
			return fmt.Sprintf("without routes: %v\n%s", err, out)
		}
		return ""
	})
	gone := f.topo.Spines[0].Name
	f.daemons[gone].stop()
	eventually(t, 5*time.Second, func() string {
		out, err := f.labctl("status")
		if loomctl.ExitCode(err) != 3 || !strings.Contains(out, gone+": ") || !strings.Contains(out, far+":\n") {
			return fmt.Sprintf("without %s: %v\n%s", gone, err, out)
		}
		return ""
	})
}
