package traffic

import (
	"math"
	"slices"
	"strings"
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
	in := must(NewIncast(IncastConfig{Client: 0, Servers: servers, Bytes: 10e6, Requests: 5, From: engine.Millisecond, Interval: interval, Conns: true}))
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
	flows := collect(must(NewShuffle(ShuffleConfig{Hosts: hosts, Bytes: 1000, From: 7})))
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
	b := must(NewBulk(BulkConfig{Stream: Stream{Seed: 2}, Pairs: must(Stride(4, 1)), Each: 3, Bytes: Endless, Until: engine.Second, Tag: 4}))
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
	udp := collect(must(NewBulk(BulkConfig{Pairs: List{{0, 1}}, Each: 1, Bytes: 1e6, Rate: 5e9, Packet: 1000})))
	if f := udp[0]; f.Rate != 5e9 || f.Packet != 1000 || f.Bytes != 1e6 || f.Until != engine.Never || f.Start != 0 {
		t.Errorf("UDP flow %+v", f)
	}
}

func TestClosedAndBulkRefused(t *testing.T) {
	ok := BulkConfig{Pairs: List{{0, 1}}, Each: 1, Bytes: 1}
	bulk := func(change func(*BulkConfig)) error {
		c := ok
		change(&c)
		_, err := NewBulk(c)
		return err
	}
	incast := func(c IncastConfig) error { _, err := NewIncast(c); return err }
	shuffle := func(c ShuffleConfig) error { _, err := NewShuffle(c); return err }
	one := []network.HostID{1}
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{"no pairs", bulk(func(c *BulkConfig) { c.Pairs = nil }), "list of pairs is empty"},
		{"no bytes", bulk(func(c *BulkConfig) { c.Bytes = 0 }), "at least one flow"},
		{"endless", bulk(func(c *BulkConfig) { c.Bytes = Endless }), "never ends"},
		{"stops first", bulk(func(c *BulkConfig) { c.From, c.Until = 10, 10 }), "would stop"},
		{"rate alone", bulk(func(c *BulkConfig) { c.Rate = 1 }), "give both"},
		{"no servers", incast(IncastConfig{Bytes: 1, Requests: 1}), "across 0 servers"},
		{"no stripes", incast(IncastConfig{Servers: []network.HostID{1, 2}, Bytes: 1, Requests: 1}), "1 bytes cannot be striped"},
		{"no requests", incast(IncastConfig{Servers: one, Bytes: 1}), "no request"},
		{"client serves", incast(IncastConfig{Client: 1, Servers: one, Bytes: 1, Requests: 1}), "client and server"},
		{"incast in the past", incast(IncastConfig{Servers: one, Bytes: 1, Requests: 1, From: -1}), "not negative"},
		{"shuffle of one", shuffle(ShuffleConfig{Hosts: one, Bytes: 1}), "1 hosts"},
		{"shuffle of twins", shuffle(ShuffleConfig{Hosts: []network.HostID{1, 1}, Bytes: 1}), "named twice"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, c.err, c.want)
		}
	}
}
