package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/namespace"
)

// bench is the test bed: three namespaces in a row, generator, device under
// test and sink, joined by two veth pairs.
//
//	gen: load ── acc :dut: upl ── end :sink
type bench struct {
	prefix                  string
	loadIndex, endIndex     int
	hostMAC, endMAC, accMAC string
	dir                     string // scratch
}

const (
	vni       = 100
	vxlanPort = 4789
	localVTEP = "10.255.0.1"
	peerVTEP  = "10.255.0.2"
	// generator and device under test have a core each.
	genCore, dutCore = 0, 1
	// burst is how many frames one test run sends. Setting one up costs some
	// 15 ms, so short bursts would measure pauses.
	burst    = 400_000
	liveFlag = 1 << 1 // BPF_F_TEST_XDP_LIVE_FRAMES
	srcMAC   = "02:00:00:00:0a:01"
	dstMAC   = "02:00:00:00:0b:02"
)

func (b *bench) ns(which string) string { return b.prefix + which }

func command(args ...string) error {
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// ip runs an ip(8) command in one of the namespaces.
func (b *bench) ip(which, line string) error {
	return command(append([]string{"ip", "-n", b.ns(which)}, strings.Fields(line)...)...)
}

// sh runs a shell command in one of the namespaces, with its own /sys.
func (b *bench) sh(which, line string) error {
	return command("ip", "netns", "exec", b.ns(which), "sh", "-ec", line)
}

// inNS runs fn on a thread of its own inside a namespace. It binds the thread to
// core unless core is negative.
func (b *bench) inNS(which string, core int, fn func() error) error {
	return namespace.Do(b.ns(which), func() error {
		if core >= 0 {
			if err := bind([]int{0}, core); err != nil {
				return err
			}
		}
		return fn()
	})
}

// setUp makes namespaces and links afresh.
func (b *bench) setUp() error {
	for _, which := range []string{"gen", "dut", "sink"} {
		if err := namespace.Create(b.ns(which)); err != nil {
			return err
		}
		if err := b.sh(which, "sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1"); err != nil {
			return err
		}
	}
	for _, step := range []struct{ ns, line string }{
		{"gen", "link add load numrxqueues 1 numtxqueues 1 type veth peer name acc netns " + b.ns("dut") + " numrxqueues 1 numtxqueues 1"},
		{"dut", "link add upl numrxqueues 1 numtxqueues 1 mtu 1600 type veth peer name end netns " + b.ns("sink") + " numrxqueues 1 numtxqueues 1"},
		{"sink", "link set end mtu 1600"},
		{"gen", "link set load up"},
		{"dut", "link set acc up"},
		{"dut", "link set upl up"},
		{"sink", "link set end up"},
		{"sink", "addr add " + peerVTEP + "/24 dev end"},
	} {
		if err := b.ip(step.ns, step.line); err != nil {
			return err
		}
	}
	var err error
	if b.loadIndex, b.hostMAC, err = b.linkOf("gen", "load"); err != nil {
		return err
	}
	if _, b.accMAC, err = b.linkOf("dut", "acc"); err != nil {
		return err
	}
	b.endIndex, b.endMAC, err = b.linkOf("sink", "end")
	return err
}

func (b *bench) linkOf(which, name string) (index int, mac string, err error) {
	err = b.inNS(which, -1, func() error {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return fmt.Errorf("interface %s: %w", name, err)
		}
		index, mac = l.Attrs().Index, l.Attrs().HardwareAddr.String()
		return nil
	})
	return index, mac, err
}

// tearDown removes the namespaces; interfaces go with them.
func (b *bench) tearDown() error {
	var errs []error
	for _, which := range []string{"gen", "dut", "sink"} {
		errs = append(errs, namespace.Delete(b.ns(which)))
	}
	return errors.Join(errs...)
}

// frame returns an Ethernet frame of n bytes: UDP over IPv4 from a host to one
// behind the other VTEP.
func frame(n int) []byte {
	f := make([]byte, n)
	copy(f, []byte{2, 0, 0, 0, 0x0b, 2, 2, 0, 0, 0, 0x0a, 1, 0x08, 0})
	ip := f[14:]
	ip[0], ip[8], ip[9] = 0x45, 64, 17
	binary.BigEndian.PutUint16(ip[2:], uint16(n-14))
	copy(ip[12:], []byte{192, 168, 0, 1, 192, 168, 0, 2})
	var sum uint32
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum))
	udp := ip[20:]
	binary.BigEndian.PutUint16(udp[2:], 9) // discard
	binary.BigEndian.PutUint16(udp[4:], uint16(n-14-20))
	return f
}

// load holds the generator's counts of a run.
type load struct {
	frames uint64
	cpu    time.Duration // of its thread, softirqs that ran on top of it included
	wall   time.Duration
}

// generate sends bursts of the frame for at least d.
func (b *bench) generate(f []byte, d time.Duration) (load, error) {
	var l load
	err := b.inNS("gen", genCore, func() error {
		prog, counter, err := newGenerator(b.loadIndex)
		if err != nil {
			return err
		}
		defer prog.Close()
		defer counter.Close()
		cpu, err := cpuTime(unix.CLOCK_THREAD_CPUTIME_ID)
		if err != nil {
			return err
		}
		start := time.Now()
		for time.Since(start) < d {
			if _, err := prog.Run(&ebpf.RunOptions{Data: f, Repeat: burst, Flags: liveFlag}); err != nil {
				return fmt.Errorf("send a burst: %w", err)
			}
		}
		l.wall = time.Since(start)
		after, err := cpuTime(unix.CLOCK_THREAD_CPUTIME_ID)
		if err != nil {
			return err
		}
		l.cpu = after - cpu
		return counter.Lookup(uint32(0), &l.frames)
	})
	return l, err
}

// baseline measures the generator against a receiver that drops at once. The result
// is the cost of a frame before the device under test works on it.
func (b *bench) baseline(f []byte, d time.Duration) (perFrame time.Duration, err error) {
	attached, err := b.attachXDP("acc", xdpDrop)
	if err != nil {
		return 0, err
	}
	defer attached.Close()
	l, err := b.generate(f, d)
	if err != nil || l.frames == 0 {
		return 0, fmt.Errorf("measure the generator (%d frames): %w", l.frames, err)
	}
	return l.cpu / time.Duration(l.frames), nil
}

// cpuTime reads a clock of CPU time. Linux charges softirqs to the thread that they
// interrupt or end in.
func cpuTime(clock int32) (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(clock, &ts); err != nil {
		return 0, err
	}
	return time.Duration(ts.Nano()), nil
}

// processClock is the clock of a process's CPU time, threads that have ended
// included (clock_getcpuclockid(3)).
func processClock(pid int) int32 {
	const scheduler = 2 // CPUCLOCK_SCHED: exact, not sampled by the timer tick
	return int32(^pid)<<3 | scheduler
}
