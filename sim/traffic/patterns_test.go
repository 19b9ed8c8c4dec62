package traffic

import (
	"math"
	"slices"
	"testing"

	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// lab runs flows in a network that gives each a fixed time, or one by its size.
type lab struct {
	engine  *engine.Engine
	id      engine.ID
	feed    *Feed
	takes   func(f Flow) engine.Time
	flows   []Flow
	started []engine.Time
	open    int
	most    int
}

func newLab(takes func(f Flow) engine.Time, s ...Source) *lab {
	l := &lab{engine: engine.New(), takes: takes}
	l.id = l.engine.Register(l)
	l.feed = NewFeed(l.engine, l, s...)
	return l
}

func (l *lab) StartFlow(now engine.Time, f Flow) {
	l.flows = append(l.flows, f)
	l.started = append(l.started, now)
	l.open++
	l.most = max(l.most, l.open)
	l.engine.At(now+l.takes(f), l.id, uint64(len(l.flows)-1))
}

func (l *lab) Handle(now engine.Time, arg uint64) {
	l.open--
	l.feed.Done(now, l.flows[arg])
}

// TestIncast: CONGA §5.3: "A client process residing on one of the servers
// repeatedly makes requests for a 10MB file striped across N other servers. The
// servers each respond with 10MB/N of data in a synchronized fashion".
func TestIncast(t *testing.T) {
	// The slowest stripe takes 8 ms. An interval that is longer counts.
	for interval, every := range map[engine.Time]engine.Time{engine.Microsecond: 8 * engine.Millisecond, 9 * engine.Millisecond: 9 * engine.Millisecond} {
		incast(t, interval, every)
	}
}

func incast(t *testing.T, interval, every engine.Time) {
	t.Helper()
	servers := []network.HostID{1, 2, 3, 4, 5, 6, 7}
	in := &Incast{Client: 0, Servers: servers, Bytes: 10e6, Requests: 5, Start: engine.Millisecond, Until: engine.Never, Interval: interval, Keep: true}
	l := newLab(func(f Flow) engine.Time { return engine.Time(f.Src+1) * engine.Millisecond }, in)
	l.engine.Run(engine.Never)
	if len(l.flows) != 35 || in.Finished() != 5 {
		t.Fatalf("%d flows, %d requests", len(l.flows), in.Finished())
	}
	for r := range 5 {
		var sum uint64
		for s, f := range l.flows[7*r : 7*r+7] {
			sum += f.Bytes
			at := engine.Millisecond + engine.Time(r)*every
			if f.Start != at || l.started[7*r+s] != at || f.Dst != 0 || f.Src != servers[s] || f.Conn != s || f.Bytes < 1428571 || f.Bytes > 1428572 {
				t.Errorf("request %d: %+v started at %v, want %v", r, f, l.started[7*r+s], at)
			}
		}
		if sum != 10e6 {
			t.Errorf("request %d: stripes of %d bytes", r, sum)
		}
	}
	if want := 10e6 * 8 / 8e-3; math.Abs(in.Throughput()/want-1) > 1e-9 {
		t.Errorf("effective throughput %g bit/s, want %g", in.Throughput(), want)
	}
}

// TestShuffle: each ordered pair exchanges its bytes once, and all begin at once.
func TestShuffle(t *testing.T) {
	hosts := []network.HostID{3, 5, 8, 9, 11}
	flows := collect(must(NewBulk(Stream{}, must(Shuffle(hosts, Stream{})), 1, 0, Flow{Start: 7, Bytes: 1000})))
	seen := make(map[Pair]bool)
	for i, f := range flows {
		p := Pair{f.Src, f.Dst}
		if seen[p] || f.Src == f.Dst || f.Bytes != 1000 || !slices.Contains(hosts, f.Src) || f.Start != 7 || int(f.ID) != i {
			t.Fatalf("flow %d: %+v", i, f)
		}
		seen[p] = true
	}
	if len(seen) != 20 {
		t.Errorf("%d pairs, want 20", len(seen))
	}
}

func TestBulk(t *testing.T) {
	b := must(NewBulk(Stream{Seed: 2, Number: 4}, must(Stride(4, 1)), 3, 0, Flow{Bytes: Endless, Until: engine.Second}))
	flows := collect(b)
	if len(flows) != 12 {
		t.Fatalf("%d flows", len(flows))
	}
	count := make(map[Pair]int)
	keys := make(map[uint64]bool)
	for i, f := range flows {
		count[Pair{f.Src, f.Dst}]++
		keys[f.Key] = true
		if f.Bytes != Endless || f.Until != engine.Second || int(f.ID) != i || f.Tag != 4 || f.Start != 0 {
			t.Errorf("flow %d: %+v", i, f)
		}
	}
	if len(count) != 4 || count[Pair{3, 0}] != 3 || len(keys) != 12 {
		t.Errorf("pairs %v, %d keys", count, len(keys))
	}
	udp := collect(must(NewBulk(Stream{}, []Pair{{0, 1}}, 1, 0, Flow{Bytes: 1e6, Until: engine.Never, Rate: 5e9, Packet: 1000})))
	if f := udp[0]; f.Rate != 5e9 || f.Packet != 1000 || f.Bytes != 1e6 || f.Until != engine.Never || f.Start != 0 {
		t.Errorf("UDP flow %+v", f)
	}
}
