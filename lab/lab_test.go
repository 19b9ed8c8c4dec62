package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/config/fabric"
	"github.com/loomfabric/loom/internal/namespace"
	"github.com/loomfabric/loom/internal/testenv"
)

// TestMain lets the test binary stand in for loomlab, which starts itself as
// guard, and be the loomlab that a test kills.
func TestMain(m *testing.M) {
	var err error
	switch role := os.Args; {
	case len(role) == 3 && role[1] == "guard":
		err = Guard(role[2], os.Stdin)
	case len(role) == 3 && role[1] == "victim-up":
		err = read(role[2]).Up(context.Background())
	case len(role) == 3 && role[1] == "victim-run":
		_, err = read(role[2]).Run(context.Background(), RunOptions{})
	case len(role) > 4 && role[1] == "exec":
		err = read(role[2]).Exec(role[3], role[4:])
	default:
		code := m.Run()
		if err = removeDaemons(); err == nil {
			os.Exit(code)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func read(path string) *Lab {
	f, err := fabric.Load(path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return New(f)
}

var labs int

// newLab prepares a lab of the kernel's data plane under a name of its own, and
// sees to it that nothing of it stays. The file is kept for child processes.
func newLab(t *testing.T, text string) (l *Lab, file string) {
	t.Helper()
	testenv.NeedRoot(t)
	labs++
	text = fmt.Sprintf("name: t%d_%d\n%s", os.Getpid(), labs, text)
	file = filepath.Join(t.TempDir(), "fabric.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := fabric.Parse(file, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	l = New(f)
	t.Cleanup(func() {
		if err := New(f).Down(); err != nil {
			t.Errorf("down: %v", err)
		}
	})
	return l, file
}

const small = `dataplane: kernel
leaves: 2
spines: 2
links: {parallel: 2, rate: 100Mbit}
hosts: {per_leaf: 2, link: {rate: 200Mbit}}
vnis:
  - {vni: 10, hosts: [h0, h2]}
  - {vni: 20, hosts: [h1, h3], vlan: 5}
`

// gone waits until nothing of a lab is left: namespaces, state and lock.
func gone(t *testing.T, l *Lab, within time.Duration) {
	t.Helper()
	deadline := time.Now().Add(within)
	for {
		left, err := l.namespaces()
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{l.dir(), l.lockPath()} {
			if _, err := os.Stat(path); err == nil {
				left = append(left, path)
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("left behind: %v", left)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// inside opens the processes of a lab, and closes them at the end of the test.
func inside(t *testing.T, l *Lab) []process {
	t.Helper()
	namespaces, err := l.namespaces()
	if err != nil {
		t.Fatal(err)
	}
	procs, err := l.processes(namespaces)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, p := range procs {
			unix.Close(p.fd)
		}
	})
	return procs
}

func up(t *testing.T, l *Lab) {
	t.Helper()
	if err := l.Up(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// inHost runs a program through Exec and returns its exit code and output.
func inHost(t *testing.T, file, host string, argv ...string) (int, string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(self, append([]string{"exec", file, host}, argv...)...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if exit != nil {
		return exit.ExitCode(), string(out)
	}
	return 0, string(out)
}

// pingFrom pings once from a host.
func pingFrom(t *testing.T, l *Lab, host, to string, payload int, source ...netip.Addr) (report string, ok bool) {
	t.Helper()
	return testenv.Ping(t, testenv.OpenNamespace(t, l.ns(host)), netip.MustParseAddr(to), payload, 1, source...)
}

func TestUpTwiceExecDown(t *testing.T) {
	l, file := newLab(t, small)
	up(t, l)
	if err := New(l.File).Up(context.Background()); !errors.Is(err, ErrUp) {
		t.Errorf("second up: %v", err)
	}
	if code, out := inHost(t, file, "h1", "sh", "-c", "cat /sys/class/net/eth0/mtu; exit 7"); code != 7 {
		t.Errorf("exit code %d, want 7: %s", code, out)
	}
	if code, out := inHost(t, file, "h0", "cat", "/proc/net/dev"); code != 0 || !strings.Contains(out, "eth0") {
		t.Errorf("code %d, output %s", code, out)
	}
	if code, out := inHost(t, file, "h9", "true"); code != 1 || !strings.Contains(out, `"h9"`) {
		t.Errorf("unknown host: code %d, output %s", code, out)
	}
	// A program that exec left behind must not keep the namespace alive.
	self, _ := os.Executable()
	sleeper := exec.Command(self, "exec", file, "h0", "sleep", "1000")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(5 * time.Second)
	var procs []process
	for len(procs) == 0 && time.Now().Before(deadline) {
		procs = inside(t, l)
		time.Sleep(10 * time.Millisecond)
	}
	if len(procs) != 1 || procs[0].pid != sleeper.Process.Pid {
		t.Fatalf("processes in the lab: %v, want pid %d", procs, sleeper.Process.Pid)
	}
	go func() { _ = sleeper.Wait() }()
	if err := l.Down(); err != nil {
		t.Fatal(err)
	}
	if !procs[0].wait(0) {
		t.Error("a program that exec left behind goes on")
	}
	gone(t, l, 0)
	if err := l.Down(); err != nil {
		t.Errorf("down of nothing: %v", err)
	}
}

// kernelHops lists the devices of a node's next hops to a VTEP.
func kernelHops(t *testing.T, l *Lab, node string, leaf int) (out []string) {
	t.Helper()
	err := l.in(node, func() error {
		routes, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Dst: hostNet(l.Topo.Leaves[leaf].VTEP)}, netlink.RT_FILTER_DST)
		for _, r := range routes {
			hops := r.MultiPath
			if len(hops) == 0 {
				hops = []*netlink.NexthopInfo{{LinkIndex: r.LinkIndex}}
			}
			for _, hop := range hops {
				dev, err := netlink.LinkByIndex(hop.LinkIndex)
				if err != nil {
					return err
				}
				out = append(out, dev.Attrs().Name)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(out)
	return out
}

func TestFailRestore(t *testing.T) {
	l, _ := newLab(t, small)
	up(t, l)
	check := func(when, node string, leaf int, want ...string) {
		t.Helper()
		if got := kernelHops(t, l, node, leaf); !slices.Equal(got, want) {
			t.Errorf("%s: %s reaches L%d over %v, want %v", when, node, leaf, got, want)
		}
	}
	reach := func(when string) {
		t.Helper()
		if out, ok := pingFrom(t, l, "h0", "10.100.0.3", 56); !ok {
			t.Errorf("%s: h0 cannot reach h2: %s", when, out)
		}
	}
	reach("at first")
	check("at first", "L0", 1, "up-s0-0", "up-s0-1", "up-s1-0", "up-s1-1")
	fail := func(links ...string) {
		for _, k := range links {
			if err := l.Fail(k); err != nil {
				t.Fatal(err)
			}
		}
	}
	fail("L0-S1.0")
	check("one link failed", "L0", 1, "up-s0-0", "up-s0-1", "up-s1-1")
	check("one link failed", "S1", 0, "dn-l0-1")
	check("one link failed", "L1", 0, "up-s0-0", "up-s0-1", "up-s1-0", "up-s1-1")
	reach("one link failed")
	fail("L0-S1.1")
	check("L0 lost S1", "L0", 1, "up-s0-0", "up-s0-1")
	check("L0 lost S1", "S1", 0)
	check("L0 lost S1", "L1", 0, "up-s0-0", "up-s0-1") // not through S1
	reach("L0 lost S1")
	for _, k := range []string{"L0-S1.1", "L0-S1.0"} {
		if err := l.Restore(k); err != nil {
			t.Fatal(err)
		}
	}
	check("restored", "L0", 1, "up-s0-0", "up-s0-1", "up-s1-0", "up-s1-1")
	check("restored", "L1", 0, "up-s0-0", "up-s0-1", "up-s1-0", "up-s1-1")
	check("restored", "S1", 0, "dn-l0-0", "dn-l0-1")
	reach("restored")
	if err := l.Fail("L7-S0.0"); err == nil || !strings.Contains(err.Error(), "L7-S0.0") {
		t.Errorf("unknown link: %v", err)
	}
}

// TestUpEndsWithItsCaller: a caller's own deadline is not taken for a fabric that does
// not get ready.
func TestUpEndsWithItsCaller(t *testing.T) {
	l, _ := newLab(t, small)
	up(t, l)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	testenv.OpenNamespace(t, l.ns("S1")).DeleteLink(t, "dn-l1-0") // it cannot get ready
	if err := l.waitReady(ctx); !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "not ready") {
		t.Errorf("a caller that waits for 200 ms gets %v", err)
	}
}

func TestFailNeedsUp(t *testing.T) {
	l, _ := newLab(t, small)
	if err := l.Fail("L0-S0.0"); err == nil || !strings.Contains(err.Error(), "not up") {
		t.Errorf("fail without a lab: %v", err)
	}
	if err := l.Down(); err != nil { // the lock file
		t.Fatal(err)
	}
	gone(t, l, 0)
}

// TestTwoLabs: labs of different names, with equal addresses and one name the
// beginning of the other's, do not touch each other.
func TestTwoLabs(t *testing.T) {
	a, fileA := newLab(t, small)
	b, _ := newLab(t, small)
	up(t, a)
	up(t, b)
	if err := a.Down(); err != nil {
		t.Fatal(err)
	}
	gone(t, a, 0)
	if out, ok := pingFrom(t, b, "h0", "10.100.0.3", 56); !ok {
		t.Errorf("the other lab was hurt: %s", out)
	}
	if code, _ := inHost(t, fileA, "h0", "true"); code == 0 {
		t.Error("exec works in a lab that is down")
	}
}

func TestIsolationAndVLAN(t *testing.T) {
	l, file := newLab(t, small)
	up(t, l)
	tenants(t, l, file)
}

// tenants looks at the networks of the fabric "small", whatever carries it: a
// tagged port takes full frames and IPv6, and one VNI does not reach another.
func tenants(t *testing.T, l *Lab, file string) {
	t.Helper()
	if out, ok := pingFrom(t, l, "h1", "10.101.0.4", 1472); !ok {
		t.Errorf("full-size frame over VLAN 5: %s", out)
	}
	if out, ok := pingFrom(t, l, "h1", "fd00::14:0:0:0:4", 56); !ok {
		t.Errorf("IPv6: %s", out)
	}
	// h1 gives itself an address of the other VNI; nobody there may answer.
	if code, out := inHost(t, file, "h1", "ip", "addr", "add", "10.100.0.2/16", "dev", "eth0"); code != 0 {
		t.Fatalf("ip addr add: %s", out)
	}
	if _, ok := pingFrom(t, l, "h1", "10.100.0.3", 56, netip.MustParseAddr("10.100.0.2")); ok {
		t.Error("VNI 20 reaches VNI 10")
	}
}

func TestDownSparesStrangers(t *testing.T) {
	l, _ := newLab(t, small)
	other := exec.Command("sleep", "1000")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { other.Process.Kill(); other.Wait() }()
	up(t, l)
	if err := l.Down(); err != nil {
		t.Fatal(err)
	}
	if fd, err := unix.PidfdOpen(other.Process.Pid, 0); err != nil || (process{fd: fd}).wait(50*time.Millisecond) {
		t.Errorf("down ended a process that is not the lab's: %v", err)
	}
	gone(t, l, 0)
}

// TestDownFindsHidden: down ends a daemon whose namespace somebody has removed.
func TestDownFindsHidden(t *testing.T) {
	l, _ := withDaemons(t, small)
	up(t, l)
	procs := inside(t, l)
	if len(procs) != 4 {
		t.Fatalf("processes %v, want 4 daemons", procs)
	}
	for _, n := range l.nodes() {
		if err := namespace.Delete(l.ns(n.Name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Down(); err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		if !p.wait(0) {
			t.Errorf("process %d goes on", p.pid)
		}
	}
	gone(t, l, 0)
}
