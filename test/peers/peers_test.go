// Package peers compares Loom, by its workers and by its fast path, with Open vSwitch's
// user-space datapath on AF_XDP and with the kernel, over veth, in turn in one run. See
// README.md for what is measured and how; `make bench-peers` runs it.
package peers

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf/rlimit"

	"github.com/loomfabric/loom/internal/spread"
	"github.com/loomfabric/loom/internal/testenv"
)

var (
	rounds = flag.Int("rounds", 5, "how often each device is measured; the tables have the medians")
	window = flag.Duration("window", 300*time.Millisecond, "how long a rate, or how long frames are under way, is measured")
)

// drain is how long a device may take to send what it has.
const drain = 20 * time.Millisecond

// firstFrames are how many show how fast a device is. A fast path has workers forward them, and
// all of them have left when the next burst comes.
const firstFrames = 50_000

var frameSizes = []int{64, 1500}

// BenchmarkPeers measures every device in every round, and then prints the medians of the
// rounds. The numbers that Go prints with each are of one core and of frames of 64 bytes.
func BenchmarkPeers(b *testing.B) {
	if os.Geteuid() != 0 {
		skip(b, "it needs root for network namespaces and AF_XDP: run `make bench-peers`")
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		b.Fatal(err)
	}
	hurrySession(b)
	daemons, remove, err := testenv.Daemons(false)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := remove(); err != nil {
			b.Error(err)
		}
	})
	r := newResults()
	for round := range *rounds {
		for i := range jobs {
			j := &jobs[i]
			for k := range j.devices {
				dev := &j.devices[k]
				b.Run(fmt.Sprintf("round=%d/job=%s/device=%s", round+1, j.name, dev.name), func(b *testing.B) {
					for _, tool := range dev.tools {
						if _, err := exec.LookPath(tool); err != nil {
							skip(b, fmt.Sprintf("%v: apt-get install %s", err, dev.install))
						}
					}
					dev.measure(b, j, daemons, round, r)
					b.ReportMetric(0, "ns/op") // says nothing
					m := r.of[cell{oneCore, j.name, 64, dev.name}][round]
					b.ReportMetric(m.pps/1e6, "Mpps")
					b.ReportMetric(m.cpu, "cpu-ns/frame")
				})
			}
		}
	}
	r.report(os.Stdout)
}

// skip skips a benchmark and says so, which `go test` does only with -v.
func skip(b *testing.B, why string) {
	fmt.Printf("%s is skipped: %s\n", b.Name(), why)
	b.SkipNow()
}

// measure sets a bed up afresh, so that no device finds what another left, and
// measures the device in all placements with frames of every size.
func (dev *device) measure(b *testing.B, j *job, daemons string, round int, r *results) {
	// Daemons are to end with this process, which the kernel takes to be the thread
	// that started them.
	runtime.LockOSThread()
	hurry(b) // daemons inherit it
	d := newBed(b, j, daemons)
	m := &meter{bed: d, gen: newGenerator(b, d), alone: map[int]time.Duration{}, results: r}
	for _, size := range frameSizes {
		m.alone[size] = m.baseline(b, size)
	}
	m.dev, m.device = dev.start(b, d), dev
	m.threads = []int{d.ksoftirqd[dutCore]}
	for _, p := range placements {
		if p.otherCore && !dev.polls {
			m.threads = append(m.threads, d.threaded(b)...)
		}
		for _, size := range frameSizes {
			c := cell{p.name, j.name, size, dev.name}
			if p.otherCore && dev.polls { // its threads have had the other core before
				r.add(c, round, r.of[cell{oneCore, j.name, size, dev.name}][round])
				continue
			}
			r.add(c, round, m.sample(b, p, size))
		}
	}
}

// placement is where the device under test works, and who takes its frames.
type placement struct {
	name string
	// otherCore gives the softirq in which the device receives a thread on a core other than
	// the generator's.
	otherCore bool
	receiver  receiver
	timed     bool // how long frames are under way is measured, too
}

const (
	oneCore    = "device and generator on one core, receiver without socket buffers"
	skbs       = "device and generator on one core, receiver with socket buffers"
	otherCore  = "device on the other core, receiver without socket buffers"
	halfLoaded = 2 // the part of its rate that a device is loaded with when frames are timed
)

// placements are in the order of measuring. The device stays on the other core once it is there.
var placements = []placement{{oneCore, false, noBuffers, true}, {skbs, false, buffers, false}, {otherCore, true, noBuffers, false}}

// meter measures one device.
type meter struct {
	bed     *bed
	gen     *generator
	device  *device
	dev     running
	threads []int                 // of the kernel that work for the device
	alone   map[int]time.Duration // the generator's time a frame without a device, by size
	results *results
}

// baseline measures the generator against a program that drops at once where the device will receive. The
// result is the cost of a frame before the device under test works on it.
func (m *meter) baseline(b *testing.B, size int) time.Duration {
	b.Helper()
	attached := m.bed.attachXDP(b, &m.bed.in, always(xdpDrop))
	defer attached.Close()
	s, _ := m.bed.job.frames(m.bed, size)
	l := m.gen.send(b, &s, 10*firstFrames)
	return l.perFrame()
}

// sample measures a device that is running.
func (m *meter) sample(b *testing.B, p placement, size int) (r measured) {
	d := m.bed
	s, w := d.job.frames(d, size)
	to := d.newSink(b, p.receiver, &w, false)
	l := m.gen.send(b, &s, firstFrames)
	l = m.gen.send(b, &s, l.fill(*window/2)) // fills caches and flow tables
	var before fastCount
	if m.dev.fast != nil {
		before = m.dev.fast(b)
	}
	good, bad, start := to.count(b, sinkGood), to.count(b, sinkOther), time.Now()
	threads, processes := cpuOf(b, m.threads...), cpuOf(b, m.dev.pids...)
	l = m.gen.send(b, &s, l.fill(*window))
	// Processes also run, and poll busily, while a burst is prepared.
	share := l.wall.Seconds() / time.Since(start).Seconds()
	own := cpuOf(b, m.threads...) - threads + time.Duration(share*float64(cpuOf(b, m.dev.pids...)-processes))
	arrived, other := to.count(b, sinkGood)-good, to.count(b, sinkOther)-bad
	if arrived == 0 {
		b.Fatalf("%s: no frame arrived as it should, for %d that were sent; %d others", p.name, l.frames, other)
	}
	if other > arrived/1000 {
		b.Errorf("%s: %d frames arrived as they should, and %d others", p.name, arrived, other)
	}
	if m.dev.fast != nil {
		r.fast, r.why = m.dev.fast(b).since(before, arrived)
	}
	to.close(b)
	m.results.got(l.cpu.Seconds() / l.wall.Seconds())
	if p.otherCore || m.device.polls {
		m.results.got(own.Seconds() / l.wall.Seconds())
	}
	r.pps = float64(arrived) / l.wall.Seconds()
	r.own = float64(own) / float64(arrived)
	r.cpu = r.own + m.received(p, size, &l, arrived)
	if p.timed {
		m.time(b, p, size, &r)
	}
	return r
}

// received returns the time of the generator's core for a frame that the device has delivered, in ns, beyond what it
// needs without a device. A thread that polls is not asked to answer for frames that its ring
// had no room for.
func (m *meter) received(p placement, size int, l *load, arrived uint64) float64 {
	if p.otherCore {
		return 0
	}
	excess := max(float64(l.cpu)-float64(l.frames)*float64(m.alone[size]), 0)
	if m.device.polls {
		return excess / float64(l.frames)
	}
	return excess / float64(arrived)
}

// time measures how long frames are under way when the device has half of what it can do.
func (m *meter) time(b *testing.B, p placement, size int, r *measured) {
	s, w := m.bed.job.frames(m.bed, size)
	to := m.bed.newSink(b, p.receiver, &w, true)
	defer to.close(b)
	time.Sleep(drain) // what the device still has would count
	interval := time.Duration(halfLoaded * 1e9 / r.pps)
	l := m.gen.pace(b, &s, interval, *window)
	times := to.underWay(b)
	if len(times) == 0 {
		b.Fatalf("%s: no frame with a time in it arrived, for %d that were sent", p.name, l.frames)
	}
	r.offered = l.rate() / r.pps
	r.lost = 1 - float64(to.count(b, sinkGood))/float64(l.frames)
	for i, q := range quantiles {
		r.latency[i] = time.Duration(times[spread.Rank(q, uint64(len(times)))-1])
	}
}

// median returns the nearest-rank median of values, which it sorts.
func median(v []float64) float64 {
	slices.Sort(v)
	return spread.Quantile(v, 0.5)
}
