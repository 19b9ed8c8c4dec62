package peers

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/testenv"
)

// bed is the test bed: three namespaces in a row, generator, device under test
// and sink, joined by two veth pairs.
//
//	gen: load ── acc :dut: upl ── end :sink
type bed struct {
	gen, dut, sink      *testenv.Namespace
	loadIndex, endIndex int
	endMAC              string
	daemons             string // folder with leafd
	dir                 string // scratch
}

const (
	vni       = 100
	vxlanPort = 4789
	localVTEP = "10.255.0.1"
	peerVTEP  = "10.255.0.2"
	// generator and device under test have a core each.
	genCore, dutCore = 0, 1
	dstMAC           = "02:00:00:00:0b:02"
)

// newBed makes namespaces and links afresh. They go when the benchmark ends.
func newBed(b *testing.B, daemons string) *bed {
	d := &bed{
		gen: testenv.NewNamespace(b, "peers-gen"), dut: testenv.NewNamespace(b, "peers-dut"), sink: testenv.NewNamespace(b, "peers-sink"),
		daemons: daemons, dir: b.TempDir(),
	}
	load, _ := testenv.VethPair(b, d.gen, "load", d.dut, "acc", testenv.VethOptions{KeepTXCsum: true})
	_, end := testenv.VethPair(b, d.dut, "upl", d.sink, "end", testenv.VethOptions{KeepTXCsum: true, MTU: 1600})
	d.loadIndex, d.endIndex, d.endMAC = load.Attrs().Index, end.Attrs().Index, end.Attrs().HardwareAddr.String()
	ip(b, d.sink, "addr add "+peerVTEP+"/24 dev end")
	return d
}

// underlay gives the device's uplink its address, and the MAC address of the sink.
func (d *bed) underlay(b *testing.B) {
	ip(b, d.dut, "addr add "+localVTEP+"/24 dev upl")
	ip(b, d.dut, fmt.Sprintf("neigh add %s lladdr %s dev upl nud permanent", peerVTEP, d.endMAC))
}

// ip runs an ip(8) command in a namespace.
func ip(b *testing.B, ns *testenv.Namespace, line string) {
	b.Helper()
	command(b, nil, append([]string{"ip", "-n", ns.Name}, strings.Fields(line)...)...)
}

// command runs a program with additions to the environment.
func command(b *testing.B, env []string, args ...string) {
	b.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// daemon starts a program in the dut namespace that runs until the benchmark ends,
// and returns its pid. The program's output is shown if the benchmark fails.
func (d *bed) daemon(b *testing.B, env []string, args ...string) (pid int) {
	b.Helper()
	name := filepath.Base(args[0])
	var out bytes.Buffer
	cmd := exec.CommandContext(b.Context(), "ip", append([]string{"netns", "exec", d.dut.Name}, args...)...) // ip replaces itself by the program
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = &out, &out
	// A benchmark that is killed must not leave its daemons behind.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		b.Fatalf("start %s: %v", name, err)
	}
	b.Cleanup(func() {
		err := cmd.Wait()
		if end := cmd.ProcessState; !end.Success() && end.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
			b.Errorf("%s: %v", name, err)
		}
		if b.Failed() {
			b.Logf("%s says:\n%s", name, &out)
		}
	})
	return cmd.Process.Pid
}

// ready waits for something that takes its time.
func ready(b *testing.B, what string, limit time.Duration, ok func() bool) {
	b.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			b.Fatalf("%s: not there after %v", what, limit)
		}
	}
}

// kernelThreads lists kernel threads by the beginning of their name.
func kernelThreads(b *testing.B, prefix string) (pids []int) {
	b.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		b.Fatal(err)
	}
	for _, path := range paths {
		comm, err := os.ReadFile(path)
		if err != nil || !strings.HasPrefix(string(comm), prefix) {
			continue // another one, or ended meanwhile
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			b.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// bind binds a thread to a core; 0 is the calling thread.
func bind(b *testing.B, pid, core int) {
	b.Helper()
	var set unix.CPUSet
	set.Set(core)
	if err := unix.SchedSetaffinity(pid, &set); err != nil {
		b.Fatalf("bind thread %d to core %d: %v", pid, core, err)
	}
}

// cpuTime reads a clock of CPU time. Linux charges softirqs to the thread that they
// interrupt or end in.
func cpuTime(b *testing.B, clock int32) time.Duration {
	b.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(clock, &ts); err != nil {
		b.Fatalf("read CPU clock %d: %v", clock, err)
	}
	return time.Duration(ts.Nano())
}

// cpuOf sums the CPU time of processes, threads that have ended included
// (clock_getcpuclockid(3)).
func cpuOf(b *testing.B, pids []int) (sum time.Duration) {
	b.Helper()
	const scheduler = 2 // CPUCLOCK_SCHED: exact, not sampled by the timer tick
	for _, pid := range pids {
		sum += cpuTime(b, int32(^pid)<<3|scheduler)
	}
	return sum
}
