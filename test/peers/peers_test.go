// Package peers compares VXLAN encapsulation on one core over veth: Loom, Open
// vSwitch's user-space datapath on AF_XDP, and the kernel's bridge with a vxlan
// port, in turn in one run. See README.md for what is measured and how;
// `make bench-peers` runs it.
package peers

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"

	"github.com/loomfabric/loom/internal/spread"
	"github.com/loomfabric/loom/internal/testenv"
)

var rounds = flag.Int("rounds", 3, "how often each device is measured; the table has the medians")

var frameSizes = []int{64, 1500}

// device is a device under test. It encapsulates the frames that arrive on acc and
// sends them on upl.
type device struct {
	name    string
	tools   []string // programs that it needs
	install string   // packages that have them
	// softirqReceive reports whether the device receives in a softirq on the
	// generator's core. The generator's time is corrected then.
	softirqReceive bool
	// start sets the device up in the bed's dut namespace. It returns when the device
	// forwards, with the pids of its processes and kernel threads.
	start func(b *testing.B, d *bed) (pids []int)
}

var devices = []device{
	{"Loom", []string{"ip"}, "iproute2", true, startLoom},
	{"Open vSwitch", []string{"ip", "ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl", "ovs-ofctl", "ovs-appctl"}, "iproute2 openvswitch-switch", true, startOVS},
	{"kernel", []string{"ip", "bridge", "ethtool"}, "iproute2 ethtool", false, startKernel},
}

// result is one measurement of one device.
type result struct {
	pps    float64       // VXLAN frames that reached the sink, per second
	cpu    time.Duration // CPU time a frame
	offers float64       // frames per second that the generator sent
	core   float64       // share of its core that the device got; the rest went to others
}

type key struct {
	device string
	size   int
}

// BenchmarkEncap measures every device in every round. One operation is a burst of
// frames. The last lines compare the devices by the medians of their rounds.
func BenchmarkEncap(b *testing.B) {
	if os.Geteuid() != 0 {
		skip(b, "it needs root for network namespaces and AF_XDP: run `make bench-peers`")
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		b.Fatal(err)
	}
	daemons, remove, err := testenv.Daemons(false)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := remove(); err != nil {
			b.Error(err)
		}
	})
	results := map[key][]result{}
	for round := range *rounds {
		for _, dev := range devices {
			b.Run(fmt.Sprintf("round=%d/device=%s", round+1, dev.name), func(b *testing.B) { dev.measure(b, daemons, results) })
		}
	}
	report(b, results)
}

// skip skips a benchmark and says so, which `go test` does only with -v.
func skip(b *testing.B, why string) {
	fmt.Printf("%s is skipped: %s\n", b.Name(), why)
	b.SkipNow()
}

// measure sets a bed up afresh, so that no device finds what another left, and
// measures the device with frames of every size.
func (dev *device) measure(b *testing.B, daemons string, results map[key][]result) {
	for _, tool := range dev.tools {
		if _, err := exec.LookPath(tool); err != nil {
			skip(b, fmt.Sprintf("%v: apt-get install %s", err, dev.install))
		}
	}
	// Daemons are to end with this process, which the kernel takes to be the thread
	// that started them.
	runtime.LockOSThread()
	d := newBed(b, daemons)
	base := map[int]time.Duration{}
	if dev.softirqReceive {
		for _, size := range frameSizes {
			base[size] = d.baseline(b, frame(size))
		}
	}
	sink := d.newSink(b)
	pids := append(kernelThreads(b, fmt.Sprintf("ksoftirqd/%d\n", dutCore)), dev.start(b, d)...)
	for _, size := range frameSizes {
		b.Run(fmt.Sprintf("frame=%d", size), func(b *testing.B) {
			r, l := d.sample(b, sink, pids, frame(size))
			if dev.softirqReceive {
				r.cpu += max(l.perFrame()-base[size], 0)
			}
			results[key{dev.name, size}] = append(results[key{dev.name, size}], r)
			b.ReportMetric(0, "ns/op") // a burst's time says nothing
			b.ReportMetric(r.pps/1e6, "Mpps")
			b.ReportMetric(r.offers/1e6, "Mpps-offered")
			b.ReportMetric(float64(r.cpu), "cpu-ns/frame")
			b.ReportMetric(r.core*100, "core-%")
		})
	}
}

// sample measures a device that is running. It counts neither the softirqs on the
// generator's core nor the first half second, which fills caches and flow tables.
func (d *bed) sample(b *testing.B, sink *ebpf.Map, pids []int, f []byte) (result, load) {
	d.generate(b, f, lasting(warmUp))
	good, before := count(b, sink, sinkGood), cpuOf(b, pids)
	l := d.generate(b, f, b.Loop)
	cpu, arrived := cpuOf(b, pids)-before, count(b, sink, sinkGood)-good
	if arrived == 0 {
		b.Fatalf("no VXLAN frame of VNI %d arrived for %d that were sent (%d others)", vni, l.frames, count(b, sink, sinkOther))
	}
	return result{
		pps:    float64(arrived) / l.wall.Seconds(),
		cpu:    cpu / time.Duration(arrived),
		offers: float64(l.frames) / l.wall.Seconds(),
		core:   cpu.Seconds() / l.wall.Seconds(),
	}, l
}

func median(rs []result, of func(result) float64) float64 {
	var v []float64
	for _, r := range rs {
		v = append(v, of(r))
	}
	slices.Sort(v)
	return spread.Quantile(v, 0.5)
}

// report prints the medians, and the ratio of Loom to each device.
func report(b *testing.B, results map[key][]result) {
	if len(results) == 0 {
		return
	}
	pps := func(r result) float64 { return r.pps }
	cpu := func(r result) float64 { return float64(r.cpu) }
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\nframe\tdevice\tMpps\tns CPU/frame\tLoom's rate\tLoom's CPU\t")
	least := 1.0 // share of its core that a device got
	for _, size := range frameSizes {
		loom := results[key{devices[0].name, size}]
		for _, dev := range devices {
			rs := results[key{dev.name, size}]
			if len(rs) == 0 {
				continue
			}
			fmt.Fprintf(w, "%d\t%s\t%.3f\t%.0f\t", size, dev.name, median(rs, pps)/1e6, median(rs, cpu))
			if len(loom) > 0 {
				fmt.Fprintf(w, "%.2f x\t%.2f x\t", median(loom, pps)/median(rs, pps), median(rs, cpu)/median(loom, cpu))
			}
			fmt.Fprintln(w)
			for _, r := range rs {
				least = min(least, r.core)
			}
		}
	}
	if err := w.Flush(); err != nil {
		b.Fatal(err)
	}
	// All devices are overloaded, so that an undisturbed one gets the whole core.
	if least < 0.9 {
		fmt.Printf("Other work took up to %.0f %% of core %d: repeat on an idle machine, or compare CPU time only.\n", (1-least)*100, dutCore)
	}
}
