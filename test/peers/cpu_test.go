package peers

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// kernelThreads lists kernel threads by the beginning of their name.
func kernelThreads(t testing.TB, prefix string) (pids []int) {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		comm, err := os.ReadFile(path)
		if err != nil || !strings.HasPrefix(string(comm), prefix) {
			continue // another one, or ended meanwhile
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// threaded gives the NAPI of the port that frames come in by a thread on the device's core,
// and returns its pid: as a softirq it runs on the generator's.
func (d *bed) threaded(t testing.TB) (pids []int) {
	name := fmt.Sprintf("napi/%s-", d.in.name)
	before := kernelThreads(t, name) // somebody else's
	d.shell(t, "echo 1 > /sys/class/net/"+d.in.name+"/threaded")
	ready(t, "NAPI thread of "+d.in.name, 2*time.Second, func() bool {
		pids = slices.DeleteFunc(kernelThreads(t, name), func(pid int) bool { return slices.Contains(before, pid) })
		return len(pids) > 0
	})
	for _, pid := range pids {
		bind(t, pid, dutCore)
		if err := unix.Setpriority(unix.PRIO_PROCESS, pid, -20); err != nil {
			t.Fatalf("set the priority of NAPI thread %d: %v", pid, err)
		}
	}
	return pids
}

// hurry has the calling thread, and what it starts, go before other work of the machine.
func hurry(t testing.TB) {
	t.Helper()
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, -20); err != nil {
		t.Fatalf("set the priority of a thread: %v", err)
	}
}

// hurrySession has the session of this process go before others until the benchmark ends, on kernels
// that share cores among sessions first (sched_autogroup_enabled), and then within them.
func hurrySession(b *testing.B) {
	b.Helper()
	const path = "/proc/self/autogroup"
	before, err := os.ReadFile(path)
	if err != nil {
		return // not such a kernel
	}
	var group, nice int
	if _, err := fmt.Sscanf(string(before), "/autogroup-%d nice %d", &group, &nice); err != nil {
		b.Fatalf("%s: %q: %v", path, before, err)
	}
	set := func(nice int) {
		if err := os.WriteFile(path, []byte(strconv.Itoa(nice)), 0); err != nil {
			b.Errorf("set the priority of the session: %v", err)
		}
	}
	set(-20)
	b.Cleanup(func() { set(nice) })
}

// bind binds a thread to a core; 0 is the calling thread.
func bind(t testing.TB, pid, core int) {
	t.Helper()
	var set unix.CPUSet
	set.Set(core)
	if err := unix.SchedSetaffinity(pid, &set); err != nil {
		t.Fatalf("bind thread %d to core %d: %v", pid, core, err)
	}
}

// cpuTime reads a clock of CPU time. Linux charges softirqs to the thread that they
// interrupt or end in.
func cpuTime(t testing.TB, clock int32) time.Duration {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(clock, &ts); err != nil {
		t.Fatalf("read CPU clock %d: %v", clock, err)
	}
	return time.Duration(ts.Nano())
}

// cpuOf sums the CPU time of processes, threads that have ended included
// (clock_getcpuclockid(3)).
func cpuOf(t testing.TB, pids ...int) (sum time.Duration) {
	t.Helper()
	const scheduler = 2 // CPUCLOCK_SCHED: exact, not sampled by the timer tick
	for _, pid := range pids {
		sum += cpuTime(t, int32(^pid)<<3|scheduler)
	}
	return sum
}
