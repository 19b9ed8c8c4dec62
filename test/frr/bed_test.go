package frr

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/config/fabric"
	"github.com/loomfabric/loom/internal/testenv"
	"github.com/loomfabric/loom/lab"
)

// A bed is a fabric of package lab that is up, and all that a test does to it.
type bed struct {
	t    *testing.T
	lab  *lab.Lab
	topo *fabric.Topology
	dir  string // the lab's state: configurations, logs, sockets
	ns   map[string]*testenv.Namespace
}

var beds atomic.Int64

// up builds the fabric of a file's text under a name of its own. It is taken down when
// the test ends, and no daemon may have panicked by then.
func up(t *testing.T, text string) *bed {
	t.Helper()
	testenv.NeedRoot(t)
	name := fmt.Sprintf("f%d_%d", os.Getpid(), beds.Add(1))
	f, err := fabric.Parse("fabric.yaml", []byte("name: "+name+"\n"+text))
	if err != nil {
		t.Fatal(err)
	}
	l := lab.New(f)
	l.Binaries = daemons
	start := time.Now()
	if err := l.Up(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Logf("up after %v", time.Since(start).Round(10*time.Millisecond))
	b := &bed{t: t, lab: l, topo: l.Topo, dir: filepath.Join("/run/loom/lab", name), ns: map[string]*testenv.Namespace{}}
	t.Cleanup(func() {
		if err := l.Down(); err != nil {
			t.Errorf("take the fabric down: %v", err)
		}
	})
	open := func(node string) { b.ns[node] = testenv.OpenNamespace(t, "loom-"+name+"-"+node) }
	for _, h := range b.topo.Hosts {
		open(h.Name)
	}
	for _, n := range b.nodes() {
		open(n.Name)
	}
	t.Cleanup(b.verify)
	return b
}

// in makes the bed that of a subtest, which fails for itself.
func (b *bed) in(t *testing.T) *bed {
	c := *b
	c.t = t
	return &c
}

func (b *bed) nodes() (out []fabric.Node) {
	return append(append(out, b.topo.Leaves...), b.topo.Spines...)
}

// verify is the end of every test: no daemon's log has a panic.
func (b *bed) verify() {
	for _, n := range b.nodes() {
		log, err := os.ReadFile(filepath.Join(b.dir, n.Name+".log"))
		if err != nil {
			continue // of a node without a daemon
		}
		if strings.Contains(string(log), "panic:") || strings.Contains(string(log), "fatal error:") {
			b.t.Errorf("log of %s:\n%s", n.Name, log)
		}
		if b.t.Failed() {
			b.t.Logf("log of %s:\n%s", n.Name, tail(string(log), 15))
		}
	}
}

func tail(text string, lines int) string {
	l := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(l[max(0, len(l)-lines):], "\n")
}

func (b *bed) host(name string) fabric.Host {
	b.t.Helper()
	h, ok := b.topo.Host(name)
	if !ok {
		b.t.Fatalf("no host is called %s", name)
	}
	return h
}

// addr is a host's IPv4 address.
func (b *bed) addr(host string) netip.Addr { return b.host(host).Addr.Addr() }

// mac is a host's MAC address as the kernel's tools print it.
func (b *bed) mac(host string) string {
	m := b.host(host).MAC
	return net.HardwareAddr(m[:]).String()
}

func (b *bed) vtep(leaf int) netip.Addr { return b.topo.Leaves[leaf].VTEP }

// ip runs iproute2's ip on a node and returns what it printed.
func (b *bed) ip(node string, args ...string) string {
	b.t.Helper()
	return run(b.t, exec.Command("ip", append([]string{"-n", b.ns[node].Name}, args...)...))
}

// bridge runs iproute2's bridge on a node and returns what it printed.
func (b *bed) bridge(node string, args ...string) string {
	b.t.Helper()
	return run(b.t, exec.Command("bridge", append([]string{"-n", b.ns[node].Name}, args...)...))
}

// vtysh runs commands in FRR's shell of a node and returns what it printed.
func (b *bed) vtysh(node string, commands ...string) string {
	b.t.Helper()
	args := []string{"--vty_socket", b.frr(node)}
	for _, c := range commands {
		args = append(args, "-c", c)
	}
	return run(b.t, exec.Command("vtysh", args...))
}

func run(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return string(out)
}

func (b *bed) frr(node string) string { return filepath.Join(b.dir, node+".frr") }

// stopRouting ends an FRR daemon of a node by a signal.
func (b *bed) stopRouting(node, daemon string, s unix.Signal) {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(b.frr(node), daemon+".pid"))
	if err != nil {
		b.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		b.t.Fatal(err)
	}
	b.kill(node+"'s "+daemon, pid, s)
}

func (b *bed) startRouting(node string, daemons ...string) {
	b.t.Helper()
	if err := b.lab.StartRouting(node, daemons...); err != nil {
		b.t.Fatal(err)
	}
}

// stopDaemon ends a node's leafd or spined by a signal.
func (b *bed) stopDaemon(node string, s unix.Signal) {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(b.dir, node+".pid"))
	if err != nil {
		b.t.Fatal(err)
	}
	var d struct{ PID int }
	if err := json.Unmarshal(text, &d); err != nil {
		b.t.Fatalf("%s: %v", text, err)
	}
	b.kill(node+"'s daemon", d.PID, s)
}

// kill sends a signal to a process and waits until it has ended.
func (b *bed) kill(what string, pid int, s unix.Signal) {
	b.t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		b.t.Fatalf("%s (process %d): %v", what, pid, err)
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, s, nil, 0); err != nil {
		b.t.Fatalf("send %v to %s: %v", s, what, err)
	}
	eventually(b.t, 10*time.Second, func() string {
		if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0); err != nil || n == 0 {
			return what + " survives " + s.String()
		}
		return ""
	})
}

// startDaemon starts a node's leafd or spined with the configuration that it had, and
// waits until it is ready.
func (b *bed) startDaemon(node string) {
	b.t.Helper()
	if err := b.lab.StartDaemon(node); err != nil {
		b.t.Fatal(err)
	}
	eventually(b.t, 15*time.Second, func() string {
		_, err := b.get(node, ".sock", "/readyz")
		if err != nil {
			return fmt.Sprintf("%s is not ready: %v", node, err)
		}
		return ""
	})
}

// get asks one of a daemon's two sockets.
func (b *bed) get(node, socket, path string) ([]byte, error) {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(b.dir, node+socket))
		},
	}}
	resp, err := client.Get("http://daemon" + path)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := readAll(resp)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(body)))
	}
	return body, err
}

// metric sums a metric's samples that have all the labels, each written as name="value".
func (b *bed) metric(node, name string, labels ...string) (sum uint64) {
	b.t.Helper()
	body, err := b.get(node, ".sock", "/metrics")
	if err != nil {
		b.t.Fatal(err)
	}
	for line := range strings.Lines(string(body)) {
		rest, ok := strings.CutPrefix(line, name+"{")
		if !ok || slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(rest, l) }) {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(rest[strings.LastIndexByte(rest, '}')+1:]), 64)
		if err != nil {
			b.t.Fatalf("%q: %v", line, err)
		}
		sum += uint64(v)
	}
	return sum
}

// eventually calls ok until it returns "", which it must within the time. It returns how
// long that took.
func eventually(t *testing.T, within time.Duration, ok func() string) time.Duration {
	t.Helper()
	for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		problem := ok()
		if problem == "" {
			return time.Since(start)
		}
		if time.Since(start) > within {
			t.Fatalf("after %v: %s", within, problem)
		}
	}
}
