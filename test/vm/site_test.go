//go:build vm

package vm

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/loomfabric/loom/internal/testenv"
	"github.com/loomfabric/loom/test/machine"
)

// keepVar names the environment variable with the folder that the machines' captures and
// logs are left in; by default they go.
const keepVar = "LOOM_VM_KEEP"

// Addresses of a site.
var (
	vtep, remoteVTEP = netip.MustParseAddr("10.255.0.1"), netip.MustParseAddr("10.255.0.2")
	leafLink, link   = netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2") // the uplink's ends
	hostAddr         = map[string]netip.Addr{
		"h0": netip.MustParseAddr("10.100.0.1"), "h1": netip.MustParseAddr("10.100.0.2"), "remote": netip.MustParseAddr("10.100.0.3"),
	}
)

// How long a machine may take that is emulated on a busy host: to boot, and for a step.
const (
	bootTime = 6 * time.Minute
	stepTime = 2 * time.Minute
)

const (
	accessMTU = 1500
	uplinkMTU = 1600
)

// site is a leaf in a machine, with two hosts and one tunnel. The hosts are namespaces
// with a tap, whose offloads are the kernel's default; the other end of the tunnel is
// Linux's own VTEP.
//
//	h0 ── tap ══ eth0 ┐                       ┌ vxlan: remote
//	h1 ── tap ══ eth1 ┴ leafd (machine) eth2 ══ tap
type site struct {
	t     *testing.T // of the running step
	ns    map[string]*testenv.Namespace
	vm    *machine.VM
	leafd func() (string, error) // waits for the daemon's end
}

// release is a release of Debian, and what is expected of its kernel.
type release struct {
	suite      string
	copies     string // how frames cross between its kernel and leafd
	properties string // of the machine's network devices
	reload     string // type of leafd's unit under its systemd
	fast       string // what loomctl fast says, among others
}

// userland are the packages of a machine, with all that they need.
var userland = []string{
	"base-files", "base-passwd", "bash", "coreutils", "iproute2", "libseccomp2", "procps", "systemd", "systemd-sysv", "util-linux",
}

// need ends the test where something is missing: make test-vm asks for these tests, and
// for nothing else.
func need(t *testing.T) {
	t.Helper()
	testenv.NeedRoot(t)
	if err := machine.Missing(machine.Needs...); err != nil {
		t.Fatal(err)
	}
}

// newSite makes a site and boots its machine. init is the first process; fill adds to the
// machine's files.
func newSite(t *testing.T, r release, init string, fill func(*machine.Image)) *site {
	t.Helper()
	s := &site{t: t, ns: map[string]*testenv.Namespace{}}
	suite, err := machine.OpenSuite(r.suite)
	if err != nil {
		t.Fatal(err)
	}
	kernel, err := suite.Kernel(machine.Modules...)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := suite.Userland(userland...)
	if err != nil {
		t.Fatal(err)
	}
	daemons, remove, err := testenv.Daemons(false)
	if err != nil {
		t.Fatal(err)
	}
	dir := s.folder()
	image := filepath.Join(t.TempDir(), "image")
	err = machine.WriteImage(image, machine.Guest(t), kernel, func(i *machine.Image) {
		for _, p := range []string{"leafd", "spined", "loomctl"} {
			i.Add("/usr/bin/"+p, filepath.Join(daemons, p), 0o755)
		}
		fill(i)
		for _, name := range []string{"passwd", "group"} { // what base-passwd does when it is installed
			i.Add("/etc/"+name, filepath.Join(tree, "usr/share/base-passwd", name+".master"), 0o644)
		}
		i.Tree(tree)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := remove(); err != nil {
		t.Error(err)
	}
	m := machine.Machine{Name: "leaf", Dir: dir, Kernel: kernel, Image: image, Init: init, CPUs: 2, Memory: 768}
	for i, host := range []string{"h0", "h1", "remote"} {
		mtu := accessMTU
		if host == "remote" {
			mtu = uplinkMTU
		}
		s.ns[host] = testenv.NewNamespace(t, "lmvm")
		tap := machine.NewTap(t, s.ns[host], "eth0", machine.TapOptions{Queues: 2, MTU: mtu, Header: true})
		m.NICs = append(m.NICs, machine.NIC{MAC: fmt.Sprintf("02:4c:00:00:00:%02x", i), MTU: mtu, Tap: tap, Properties: r.properties})
	}
	s.address()
	begun := time.Now()
	if s.vm, err = machine.Start(m); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.vm.Stop)
	ctx, cancel := context.WithTimeout(context.Background(), bootTime)
	defer cancel()
	if err := s.vm.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("Debian %s, kernel %s: ready after %v", r.suite, kernel.Version, time.Since(begun).Round(100*time.Millisecond))
	s.network()
	return s
}

// step is one of those that follow each other in a machine.
type step struct {
	name string
	run  func(*testing.T)
}

// steps runs steps. Without the first there are no others. If one fails, a script prints
// logs.
func (s *site) steps(t *testing.T, logs string, steps []step) {
	for i, step := range steps {
		if !t.Run(step.name, func(t *testing.T) { s.t = t; step.run(t) }) && i == 0 {
			break
		}
	}
	s.t = t
	if t.Failed() {
		out, err := s.try(logs)
		t.Logf("the machine's logs: %v\n%s", err, out)
	}
}

// folder is where the machine's logs go.
func (s *site) folder() string {
	s.t.Helper()
	keep := os.Getenv(keepVar)
	if keep == "" {
		return s.t.TempDir()
	}
	dir := filepath.Join(keep, strings.ReplaceAll(s.t.Name(), "/", "-"))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		s.t.Fatalf("$%s: %v", keepVar, err)
	}
	return dir
}

// address gives hosts and the tunnel's other end their addresses.
func (s *site) address() {
	s.t.Helper()
	for name, ns := range s.ns {
		ns.Do(s.t, func() {
			dev, prefix := "eth0", hostAddr[name].String()+"/24"
			var err error
			if name == "remote" {
				dev, err = "vx0", tunnel()
			}
			if err == nil {
				err = assign(dev, prefix)
			}
			if err != nil {
				s.t.Fatalf("addresses of %s: %v", name, err)
			}
		})
	}
	// The far end of the tunnel says nothing that nobody has asked for, as it would reach the
	// kernel of a leaf without leafd: it asks for no routers, and not for neighbours that it knows.
	remote := s.ns["remote"]
	remote.Sysctl(s.t, "net/ipv6/conf/all/disable_ipv6", "1")
	remote.Sysctl(s.t, "net/ipv4/neigh/vx0/delay_first_probe_time", "3600")
}

// tunnel makes this namespace a VTEP of VNI 100.
func tunnel() error {
	for _, a := range [][2]string{{"lo", remoteVTEP.String() + "/32"}, {"eth0", link.String() + "/24"}} {
		if err := assign(a[0], a[1]); err != nil {
			return err
		}
	}
	route := &netlink.Route{Dst: &net.IPNet{IP: vtep.AsSlice(), Mask: net.CIDRMask(32, 32)}, Gw: leafLink.AsSlice(), Src: remoteVTEP.AsSlice()}
	if err := netlink.RouteAdd(route); err != nil {
		return fmt.Errorf("route to %v: %w", vtep, err)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = "vx0", accessMTU
	vx := &netlink.Vxlan{LinkAttrs: attrs, VxlanId: 100, SrcAddr: remoteVTEP.AsSlice(), Group: vtep.AsSlice(), Port: 4789}
	if err := netlink.LinkAdd(vx); err != nil {
		return fmt.Errorf("vxlan device: %w", err)
	}
	return netlink.LinkSetUp(vx)
}

func assign(dev, prefix string) error {
	l, err := netlink.LinkByName(dev)
	if err != nil {
		return err
	}
	addr, err := netlink.ParseAddr(prefix)
	if err != nil {
		return err
	}
	if err := netlink.AddrAdd(l, addr); err != nil {
		return fmt.Errorf("give %s %s: %w", dev, prefix, err)
	}
	return nil
}

// network sets the machine's interfaces up as a leaf's are. It forwards IP, as leaves do
// that routers run on.
func (s *site) network() {
	s.t.Helper()
	s.run(fmt.Sprintf(`
		for d in all eth0 eth1 eth2; do echo 1 >/proc/sys/net/ipv6/conf/$d/disable_ipv6; done
		for d in all eth0 eth1 eth2; do echo 0 >/proc/sys/net/ipv4/conf/$d/rp_filter; done
		echo 1 >/proc/sys/net/ipv4/ip_forward
		ip address add %v/32 dev lo
		ip link set lo up; ip link set eth0 up; ip link set eth1 up; ip link set eth2 up
		ip address add %v/24 dev eth2
		ip route add %v via %v`, vtep, leafLink, remoteVTEP, link))
}

// run runs a script in the machine, which must succeed, and returns what it printed.
func (s *site) run(script string) string {
	s.t.Helper()
	out, err := s.try(script)
	if err != nil {
		s.t.Fatalf("%s\n%v\n%s", script, err, out)
	}
	return out
}

// try runs a script in the machine.
func (s *site) try(script string) (string, error) {
	return s.vm.Go(stepTime, "/usr/bin/bash", "-ec", "export PATH=/usr/sbin:/usr/bin; "+script)()
}

// number runs a script that prints a number.
func (s *site) number(script string) int {
	s.t.Helper()
	text := s.run(script)
	n, err := strconv.ParseInt(strings.TrimSpace(text), 0, 64)
	if err != nil {
		s.t.Fatalf("%s: %v", script, err)
	}
	return int(n)
}

// get asks the leaf's telemetry; "": it does not answer, or not with 200.
func (s *site) get(path string) string {
	s.t.Helper()
	out, err := s.try(`exec 3<>/dev/tcp/127.0.0.1/9464; printf 'GET ` + path + ` HTTP/1.0\r\n\r\n' >&3; cat <&3`)
	head, body, _ := strings.Cut(out, "\r\n\r\n")
	if err != nil || !strings.Contains(head, " 200 ") {
		return ""
	}
	return body
}

// metric adds up the values of the leaf's series of a metric that have all these labels.
func (s *site) metric(name string, labels ...string) (sum float64) {
	s.t.Helper()
	for line := range strings.Lines(s.get("/metrics")) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if i := strings.LastIndex(line, "} "); i >= 0 {
			series, value = line[:i+1], strings.TrimSpace(line[i+2:])
		}
		if base, _, _ := strings.Cut(series, "{"); base != name {
			continue
		}
		all := true
		for _, l := range labels {
			all = all && strings.Contains(series, l)
		}
		if v, err := strconv.ParseFloat(value, 64); all && err == nil {
			sum += v
		}
	}
	return sum
}

// eventually calls ok until it returns "", which it must in the time of a step.
func (s *site) eventually(ok func() string) {
	s.t.Helper()
	for deadline := time.Now().Add(stepTime); ; time.Sleep(200 * time.Millisecond) {
		problem := ok()
		if problem == "" {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("after %v: %s", stepTime, problem)
		}
	}
}
