// Peers compares VXLAN encapsulation on one core over veth: Loom, Open
// vSwitch's user-space datapath on AF_XDP, and the kernel's bridge with a vxlan
// port, in turn in one run. See README.md for what is measured and how.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/cilium/ebpf/rlimit"

	"github.com/loomfabric/loom/internal/spread"
)

var frameSizes = []int{64, 1500}

func main() {
	leafd := flag.String("leafd", "bin/leafd", "Loom's leaf daemon")
	rounds := flag.Int("rounds", 3, "how often each device is measured; the medians are printed")
	duration := flag.Duration("t", 2*time.Second, "how long each measurement takes")
	only := flag.String("only", "", "measure one device: loom, ovs or kernel")
	flag.Parse()
	// Daemons are to end with this process, which the kernel takes to be the
	// thread that started them.
	runtime.LockOSThread()
	if err := run(*leafd, *only, *rounds, *duration); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
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

func run(leafd, only string, rounds int, duration time.Duration) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("needs root for network namespaces and AF_XDP: run `make bench-peers` as a user with sudo")
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		return err
	}
	for _, tool := range []string{"ip", "bridge", "ethtool", "ovs-vswitchd", "ovsdb-server"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%w: apt-get install iproute2 ethtool openvswitch-switch", err)
		}
	}
	b := &bench{prefix: fmt.Sprintf("peers%d-", os.Getpid())}
	if b.dir, err = os.MkdirTemp("", "loom-peers-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.tearDown(), os.RemoveAll(b.dir)) }()

	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	results := map[key][]result{}
	for round := range rounds {
		for _, d := range devices(leafd, only) {
			select {
			case s := <-interrupted:
				return fmt.Errorf("ended by %v", s)
			default:
			}
			if err := b.measure(d, duration, results); err != nil {
				return fmt.Errorf("round %d: %s: %w", round+1, d.name(), err)
			}
			for _, size := range frameSizes {
				r := results[key{d.name(), size}][round]
				fmt.Fprintf(os.Stderr, "round %d  %-12s  %4d bytes  %.3f Mpps of %.3f offered, %v a frame, %.0f %% of the core\n",
					round+1, d.name(), size, r.pps/1e6, r.offers/1e6, r.cpu, r.core*100)
			}
		}
	}
	return report(results)
}

func devices(leafd, only string) []device {
	all := map[string]device{"loom": &loomDevice{leafd: leafd}, "ovs": &ovsDevice{}, "kernel": &kernelDevice{}}
	if d, ok := all[only]; ok {
		return []device{d}
	}
	return []device{all["loom"], all["ovs"], all["kernel"]}
}

// measure sets the bed up afresh, so that no device finds what another left.
func (b *bench) measure(d device, duration time.Duration, results map[key][]result) (err error) {
	if err := b.setUp(); err != nil {
		return errors.Join(err, b.tearDown())
	}
	defer func() { err = errors.Join(err, b.tearDown()) }()
	base := map[int]time.Duration{}
	if d.softirqReceive() {
		for _, size := range frameSizes {
			if base[size], err = b.baseline(frame(size), duration/4); err != nil {
				return err
			}
		}
	}
	var s *sink
	if err := b.inNS("sink", -1, func() (err error) { s, err = newSink(b.endIndex, vni); return err }); err != nil {
		return err
	}
	defer s.Close()
	if err := d.start(b); err != nil {
		return errors.Join(err, d.stop())
	}
	defer func() { err = errors.Join(err, d.stop()) }()
	for _, size := range frameSizes {
		r, err := b.sample(d, s, frame(size), base[size], duration)
		if err != nil {
			return fmt.Errorf("%d bytes: %w", size, err)
		}
		results[key{d.name(), size}] = append(results[key{d.name(), size}], r)
	}
	return nil
}

func (b *bench) sample(d device, s *sink, f []byte, base, duration time.Duration) (result, error) {
	if _, err := b.generate(f, duration/4); err != nil { // caches, flow tables
		return result{}, err
	}
	good, err := s.read(sinkGood)
	if err != nil {
		return result{}, err
	}
	before, err := deviceCPU(d)
	if err != nil {
		return result{}, err
	}
	l, err := b.generate(f, duration)
	if err != nil {
		return result{}, err
	}
	after, err := deviceCPU(d)
	if err != nil {
		return result{}, err
	}
	arrived, err := s.read(sinkGood)
	if err != nil {
		return result{}, err
	}
	if arrived -= good; arrived == 0 {
		other, err := s.read(sinkOther)
		return result{}, errors.Join(fmt.Errorf("no VXLAN frame of VNI %d arrived for %d that were sent (%d others)", vni, l.frames, other), err)
	}
	r := result{
		pps:    float64(arrived) / l.wall.Seconds(),
		cpu:    (after - before) / time.Duration(arrived),
		offers: float64(l.frames) / l.wall.Seconds(),
		core:   (after - before).Seconds() / l.wall.Seconds(),
	}
	if d.softirqReceive() {
		r.cpu += max(l.cpu/time.Duration(l.frames)-base, 0)
	}
	return r, nil
}

// deviceCPU sums the CPU time of a device's processes, and of the thread that runs
// the remaining softirqs of its core.
func deviceCPU(d device) (time.Duration, error) {
	softirq, err := kernelThreads(fmt.Sprintf("ksoftirqd/%d\n", dutCore))
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	for _, pid := range append(softirq, d.processes()...) {
		cpu, err := cpuTime(processClock(pid))
		if err != nil {
			return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
		}
		sum += cpu
	}
	return sum, nil
}

func median(rs []result, of func(result) float64) float64 {
	var v []float64
	for _, r := range rs {
		v = append(v, of(r))
	}
	slices.Sort(v)
	return spread.Quantile(v, 0.5)
}

// report prints the medians, and the ratio of the first device to each other one.
func report(results map[key][]result) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "frame\tdevice\tMpps\tns CPU/frame\tLoom's rate\tLoom's CPU\t")
	for _, size := range frameSizes {
		loom := results[key{"Loom", size}]
		for _, name := range []string{"Loom", "Open vSwitch", "kernel"} {
			rs := results[key{name, size}]
			if len(rs) == 0 {
				continue
			}
			pps := median(rs, func(r result) float64 { return r.pps })
			cpu := median(rs, func(r result) float64 { return float64(r.cpu) })
			fmt.Fprintf(w, "%d\t%s\t%.3f\t%.0f\t", size, name, pps/1e6, cpu)
			if len(loom) > 0 {
				fmt.Fprintf(w, "%.2f x\t%.2f x\t\n", median(loom, func(r result) float64 { return r.pps })/pps,
					cpu/median(loom, func(r result) float64 { return float64(r.cpu) }))
			} else {
				fmt.Fprintln(w, "\t\t")
			}
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if least := leastShare(results); least < 0.9 {
		fmt.Printf("Other work took up to %.0f %% of core %d: repeat on an idle machine, or compare CPU time only.\n", (1-least)*100, dutCore)
	}
	return nil
}

// leastShare returns the least share of its core that a device got in a measurement.
// All devices are overloaded, so that an undisturbed one gets the whole core.
func leastShare(results map[key][]result) float64 {
	least := 1.0
	for _, rs := range results {
		for _, r := range rs {
			least = min(least, r.core)
		}
	}
	return least
}
