package peers

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/ethtool"
	"github.com/loomfabric/loom/internal/testenv"
)

// bed is the test bed of a job: three namespaces in a row, generator, device under
// test and sink, joined by two veth pairs.
//
//	gen: load ══ in :dut: out ══ end :sink
type bed struct {
	job                *job
	gen, dut, sink     *testenv.Namespace
	load, in, out, end port
	daemons            string // folder with leafd, spined and loomctl
	dir                string // scratch
	ksoftirqd          [2]int // by core
}

// port is a network interface.
type port struct {
	name  string
	index int
	mac   net.HardwareAddr
}

const (
	vni       = 100
	vxlanPort = 4789
	localVTEP = "10.255.0.1"
	peerVTEP  = "10.255.0.2"
	// Next hops of a spine.
	loadHop, endHop = "10.1.0.2", "10.1.1.2"
	// The generator has a core. The softirq in which the device receives has the same or the
	// other one; its threads have the other one.
	genCore, dutCore = 0, 1
	// A host behind the device, and one behind the other VTEP.
	hostMAC, remoteMAC = "02:00:00:00:0a:01", "02:00:00:00:0b:02"
	underlayMTU        = 1600
)

// newBed makes namespaces and links afresh. They go when the test ends.
func newBed(t testing.TB, j *job, daemons string) *bed {
	d := &bed{
		job: j, gen: testenv.NewNamespace(t, "peers-gen"), dut: testenv.NewNamespace(t, "peers-dut"), sink: testenv.NewNamespace(t, "peers-sink"),
		daemons: daemons, dir: t.TempDir(),
	}
	link := func(a *testenv.Namespace, aName string, b *testenv.Namespace, bName, inside string) {
		opt := testenv.VethOptions{KeepTXCsum: true, MTU: underlayMTU}
		if inside == "acc" {
			opt.MTU = 0 // the kernel's
		}
		testenv.VethPair(t, a, aName, b, bName, opt)
	}
	link(d.gen, "load", d.dut, j.in, j.in)
	link(d.dut, j.out, d.sink, "end", j.out)
	for _, p := range []struct {
		port *port
		ns   *testenv.Namespace
		name string
	}{{&d.load, d.gen, "load"}, {&d.in, d.dut, j.in}, {&d.out, d.dut, j.out}, {&d.end, d.sink, "end"}} {
		a := p.ns.Link(t, p.name).Attrs()
		*p.port = port{p.name, a.Index, a.HardwareAddr}
	}
	// A veth takes frames from XDP only if the other end has NAPI, which GRO gives it. Frames
	// that come as socket buffers pass by it, unless an XDP program is there.
	d.sink.Do(t, func() { setGRO(t, "end", true) })
	for core := range d.ksoftirqd {
		pids := kernelThreads(t, fmt.Sprintf("ksoftirqd/%d\n", core))
		if len(pids) != 1 {
			t.Fatalf("ksoftirqd of core %d: processes %v: two cores are needed", core, pids)
		}
		d.ksoftirqd[core] = pids[0]
	}
	return d
}

// setGRO turns generic receive offload of an interface of this namespace on or off.
func setGRO(t testing.TB, name string, on bool) {
	s, err := ethtool.Open()
	if err == nil {
		err = errors.Join(s.Set(name, ethtool.GRO, on), s.Close())
	}
	if err != nil {
		t.Fatalf("set GRO of %s to %v: %v", name, on, err)
	}
}

// address gives the device its addresses, and the MAC addresses of its neighbours.
func (d *bed) address(t testing.TB) {
	lines := []string{
		fmt.Sprintf("addr add %s/24 dev upl", localVTEP),
		fmt.Sprintf("neigh add %s lladdr %s dev upl nud permanent", peerVTEP, d.beyond()),
	}
	if d.job.spine {
		lines = []string{
			"addr add 10.1.0.1/24 dev " + d.in.name,
			"addr add 10.1.1.1/24 dev " + d.out.name,
			fmt.Sprintf("neigh add %s lladdr %s dev %s nud permanent", loadHop, d.load.mac, d.in.name),
			fmt.Sprintf("neigh add %s lladdr %s dev %s nud permanent", endHop, d.end.mac, d.out.name),
			fmt.Sprintf("route add %s/32 via %s", localVTEP, loadHop),
			fmt.Sprintf("route add %s/32 via %s", peerVTEP, endHop),
		}
	}
	for _, line := range lines {
		ip(t, d.dut, line)
	}
}

// beyond returns the MAC address of the other VTEP: where frames go to, or come from.
func (d *bed) beyond() net.HardwareAddr {
	if d.in.name == "upl" {
		return d.load.mac
	}
	return d.end.mac
}

// ip runs an ip(8) command in a namespace.
func ip(t testing.TB, ns *testenv.Namespace, line string) {
	t.Helper()
	command(t, nil, append([]string{"ip", "-n", ns.Name}, strings.Fields(line)...)...)
}

// shell runs lines in the dut namespace, with the /sys that belongs to it.
func (d *bed) shell(t testing.TB, lines ...string) {
	t.Helper()
	command(t, nil, "ip", "netns", "exec", d.dut.Name, "sh", "-ec", strings.Join(lines, "\n"))
}

// command runs a program with additions to the environment, and returns what it says.
func command(t testing.TB, env []string, args ...string) string {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// daemon starts a program in the dut namespace that runs until the test ends,
// and returns its pid. The program's output is shown if the test fails.
func (d *bed) daemon(t testing.TB, env []string, args ...string) (pid int) {
	t.Helper()
	name := filepath.Base(args[0])
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "ip", append([]string{"netns", "exec", d.dut.Name}, args...)...) // ip replaces itself by the program
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = &out, &out
	// A benchmark that is killed must not leave its daemons behind.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	t.Cleanup(func() {
		err := cmd.Wait()
		if end := cmd.ProcessState; !end.Success() && end.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
			t.Errorf("%s: %v", name, err)
		}
		if t.Failed() {
			t.Logf("%s says:\n%s", name, &out)
		}
	})
	return cmd.Process.Pid
}

// ready waits for something that takes its time.
func ready(t testing.TB, what string, limit time.Duration, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not there after %v", what, limit)
		}
	}
}
