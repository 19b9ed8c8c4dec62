package dataplane

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/testenv"
	"github.com/loomfabric/loom/overlay"
)

// succession is a node that hands over to the next one again and again, in one process:
// what goes from one to the other is what goes over a socket between two.
type succession struct {
	t    *testing.T
	site *site
	node *Node
	end  func() // of the node's Run
	log  *slog.Logger
}

func (s *site) succession(t *testing.T) *succession {
	x := &succession{t: t, site: s, log: slog.New(slog.DiscardHandler)}
	s.leaf.Do(t, func() {
		var err error
		x.node, err = Open(s.cfg, x.log)
		must(t, err)
	})
	must(t, x.node.Publish(s.tables))
	x.run()
	t.Cleanup(func() { x.end() })
	return x
}

func (x *succession) run() {
	n := x.node
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	x.end = func() {
		cancel()
		if err := <-done; err != nil {
			x.t.Error(err)
		}
		if err := n.Close(); err != nil {
			x.t.Error(err)
		}
	}
}

// prepare makes a successor of the node, which goes on. change may change what the
// predecessor sends.
func (x *succession) prepare(change func(*Plan)) (*Node, error) {
	x.t.Helper()
	plan, files, err := x.node.Plan()
	must(x.t, err)
	text, err := json.Marshal(plan)
	must(x.t, err)
	var sent Plan
	must(x.t, json.Unmarshal(text, &sent))
	if change != nil {
		change(&sent)
	}
	cfg := x.site.cfg
	cfg.Adapt(&sent)
	var next *Node
	x.site.leaf.Do(x.t, func() { next, err = Inherit(cfg, &sent, files, x.log) })
	if err != nil {
		return nil, err
	}
	early := x.node.Early()
	must(x.t, next.Publish(x.site.tables))
	return next, next.Prepare(context.Background(), early)
}

// next hands over, and returns how long nobody forwarded.
func (x *succession) next() time.Duration {
	x.t.Helper()
	next, err := x.prepare(nil)
	must(x.t, err)
	snapshot, err := x.node.Stop()
	must(x.t, err)
	must(x.t, next.Load(snapshot))
	last, old := x.node.Release(), x.end
	x.node = next
	x.run()
	old()
	x.site.leaf.Do(x.t, func() { next.Settle(last) })
	for next.Pause() == 0 {
		time.Sleep(time.Millisecond)
	}
	return next.Pause()
}

// datagrams is traffic of numbered datagrams.
type datagrams struct {
	sent, twice, wrong atomic.Int64
	seen               []atomic.Bool
	done, closed       chan struct{}
}

// maxBurst is the most datagrams that are sent at once.
const maxBurst = 64

// send sends n datagrams from one namespace to a port of another, so many a second.
func send(t *testing.T, from, to *testenv.Namespace, address string, n, rate int) *datagrams {
	x := &datagrams{seen: make([]atomic.Bool, n), done: make(chan struct{}), closed: make(chan struct{})}
	var rx *net.UDPConn
	var tx net.Conn
	to.Do(t, func() {
		a, err := net.ResolveUDPAddr("udp4", address)
		must(t, err)
		rx, err = net.ListenUDP("udp4", a)
		must(t, err)
		must(t, rx.SetReadBuffer(64<<20))
	})
	from.Do(t, func() {
		var err error
		tx, err = net.Dial("udp4", address)
		must(t, err)
	})
	go func() {
		defer close(x.closed)
		b := make([]byte, 2048)
		for {
			n, err := rx.Read(b)
			if err != nil {
				return
			}
			i := binary.BigEndian.Uint32(b)
			if n != 100 || int(i) >= len(x.seen) {
				x.wrong.Add(1)
			} else if x.seen[i].Swap(true) {
				x.twice.Add(1)
			}
		}
	}()
	go func() {
		defer close(x.done)
		b := make([]byte, 100)
		for last := time.Now(); int(x.sent.Load()) < n; {
			// A veth's ring holds 256 frames: who was not scheduled must not make up for it.
			at := time.Now()
			due := min(n-int(x.sent.Load()), maxBurst, int(at.Sub(last).Seconds()*float64(rate)))
			if last = last.Add(time.Duration(due) * time.Second / time.Duration(rate)); due == maxBurst {
				last = at
			}
			for range due {
				binary.BigEndian.PutUint32(b, uint32(x.sent.Load()))
				if _, err := tx.Write(b); err != nil {
					t.Errorf("send: %v", err)
					return
				}
				x.sent.Add(1)
			}
			time.Sleep(500 * time.Microsecond)
		}
	}()
	t.Cleanup(func() { tx.Close(); rx.Close() })
	return x
}

// check waits for the end and reports what was lost, or came twice.
func (x *datagrams) check(t *testing.T, what string) {
	t.Helper()
	<-x.done
	lost := func() (n int) {
		for i := range x.seen {
			if !x.seen[i].Load() {
				n++
			}
		}
		return n
	}
	for deadline := time.Now().Add(2 * time.Second); lost() > 0 && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	if n := lost(); n > 0 || x.twice.Load() > 0 || x.wrong.Load() > 0 {
		t.Errorf("%s: %d of %d frames were lost, %d came twice, %d were wrong", what, n, len(x.seen), x.twice.Load(), x.wrong.Load())
	}
}

// A leaf hands over again and again while numbered frames go both ways: none is lost,
// none comes twice, no address is learned anew, the books balance, and counters go on.
func TestHandOver(t *testing.T) {
	for _, queues := range []int{1, 2} {
		t.Run(fmt.Sprint(queues), func(t *testing.T) { handOver(t, queues) })
	}
}

func handOver(t *testing.T, queues int) {
	s := newSite(t, queues)
	x := s.succession(t)
	warm := send(t, s.host, s.far, "172.16.0.2:7000", 10, 100)
	warm.check(t, "before")
	there := send(t, s.host, s.far, "172.16.0.2:7001", 4000, 2000)
	back := send(t, s.far, s.host, "172.16.0.1:7002", 4000, 2000)
	time.Sleep(50 * time.Millisecond)
	var pauses []time.Duration
	received := uint64(0)
	before := x.node.Stats()
	for range 6 {
		time.Sleep(100 * time.Millisecond)
		pauses = append(pauses, x.next())
		stats := x.node.Stats()
		sum := stats.Sum()
		if now := sum.Ports[0].Received.Frames; now < received {
			t.Errorf("%d frames were received, and before the hand-over it were %d", now, received)
		} else {
			received = now
		}
		for q := range stats.Workers {
			if a := stats.Workers[q].Account(); !a.Balances() {
				t.Errorf("worker %d: %v", q, a)
			}
		}
	}
	there.check(t, "there")
	back.check(t, "back")
	after := x.node.Stats()
	a, b := before.Sum(), after.Sum()
	for q := range after.Workers {
		if learned := after.Workers[q].FDBLearned - before.Workers[q].FDBLearned; learned != 0 && queues == 1 {
			t.Errorf("%d addresses were learned anew", learned)
		}
	}
	if flooded := b.VNIs[0].Flooded.Frames - a.VNIs[0].Flooded.Frames; flooded > 4 { // ARP, now and then
		t.Errorf("%d frames were flooded", flooded)
	}
	if n := b.Ports[0].Received.Frames; n < 4010 {
		t.Errorf("%d frames were counted from the host in all", n)
	}
	if d := after.Drops(); len(d) > 0 {
		t.Errorf("dropped %v", d)
	}
	t.Logf("pauses %v", pauses)
}

// A successor that would load another program puts it in place once it forwards, and the
// classifier's counts go on.
func TestHandOverReplacesPrograms(t *testing.T) {
	s := newSite(t, 1)
	x := s.succession(t)
	ids := func() (ids []uint32) {
		for _, name := range []string{"acc0", "up0"} {
			ids = append(ids, s.leaf.Link(t, name).Attrs().Xdp.ProgId)
		}
		return ids
	}
	before := ids()
	there := send(t, s.host, s.far, "172.16.0.2:7000", 1500, 2000)
	for seed := range uint64(3) {
		time.Sleep(100 * time.Millisecond)
		s.cfg.Seed = 100 + seed
		x.next()
		after := ids()
		for i := range after {
			if after[i] == before[i] || after[i] == 0 {
				t.Errorf("program %d is on port %d, and was before", after[i], i)
			}
		}
		before = after
	}
	there.check(t, "there")
	if n := x.node.PortInfos()[0].Classifier["redirect"]; n < 1500 {
		t.Errorf("%d frames were redirected, as the classifiers counted", n)
	}
}

// The successor has a port less, and the next one has it again: its frames are free in
// between, its program is gone, and other ports do not notice.
func TestHandOverOtherPorts(t *testing.T) {
	s := newSite(t, 1)
	extra, _ := testenv.VethPair(t, s.leaf, "acc1", s.host, "eth1", testenv.VethOptions{})
	with := func() {
		s.cfg.Ports = append(s.cfg.Ports[:2:2], PortConfig{Name: "acc1", Kind: Access, FailOpen: true, Optional: true, Egress: EgressConfig{QueueBytes: 1 << 20}})
		tables := *s.tables
		tables.Ports, tables.Bindings = append(tables.Ports[:2:2], portState(extra)), append(tables.Bindings[:1:1], Binding{Port: 2})
		s.tables = &tables
	}
	without := func() {
		s.cfg.Ports = s.cfg.Ports[:2]
		tables := *s.tables
		tables.Ports, tables.Bindings = tables.Ports[:2], tables.Bindings[:1]
		s.tables = &tables
	}
	with()
	x := s.succession(t)
	there := send(t, s.host, s.far, "172.16.0.2:7000", 3000, 2000)
	frames := func() (free, all int) {
		w := x.node.workers[0]
		w.call(func() { free, all = w.pool.Free(), w.pool.Frames() })
		return free, all
	}
	rings := 2 * s.cfg.RingSize // of the two ports that stay: the fill rings
	for range 2 {
		time.Sleep(100 * time.Millisecond)
		without()
		x.next()
		if p := s.leaf.Link(t, "acc1").Attrs().Xdp; p != nil && p.Attached {
			t.Error("the port that is gone has its program still")
		}
		if free, all := frames(); free < all-rings-512 {
			t.Errorf("%d of %d frames are free", free, all)
		}
		time.Sleep(100 * time.Millisecond)
		with()
		x.next()
		s.leaf.Do(t, func() { x.node.followDevices() }) // the watcher is not in the namespace
		if p := x.node.PortInfos()[2]; !p.Open {
			t.Fatalf("the port does not open: %s", p.Error)
		}
	}
	there.check(t, "there")
	for q, w := range x.node.Stats().Workers {
		if a := w.Account(); !a.Balances() {
			t.Errorf("worker %d: %v", q, a)
		}
	}
}

// A successor that cannot take over leaves the node as it was.
func TestInheritRefuses(t *testing.T) {
	s := newSite(t, 1)
	x := s.succession(t)
	for want, change := range map[string]func(*Plan){
		"a plan of version 2": func(p *Plan) { p.Version = 2 },
		"`workers` 2":         func(p *Plan) { p.Workers = 2 },
		"role 2":              func(p *Plan) { p.Role = Spine },
		"packet buffers of":   func(p *Plan) { p.FrameSize = 4096 },
		"adopt UMEM":          func(p *Plan) { p.Frames++ },
		"sockets came for":    func(p *Plan) { p.Ports[0].Sockets = nil },
		"are not a program":   func(p *Plan) { p.Ports[0].Program.Parts = p.Ports[0].Program.Parts[:2] },
	} {
		if n, err := x.prepare(change); n != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
		x.node.Resume()
	}
	send(t, s.host, s.far, "172.16.0.2:7000", 500, 2000).check(t, "afterwards")
	x.next()
	send(t, s.host, s.far, "172.16.0.2:7003", 500, 2000).check(t, "after all")
}

// The node goes on where it was stopped if its successor goes away with the snapshot.
func TestResume(t *testing.T) {
	s := newSite(t, 1)
	x := s.succession(t)
	there := send(t, s.host, s.far, "172.16.0.2:7000", 1000, 2000)
	for range 5 {
		time.Sleep(50 * time.Millisecond)
		next, err := x.prepare(nil)
		must(t, err)
		snapshot, err := x.node.Stop()
		must(t, err)
		must(t, next.Load(snapshot))
		must(t, next.Close()) // it dies
		x.node.Resume()
	}
	there.check(t, "there")
	if a := x.node.Stats().Workers[0].Account(); !a.Balances() {
		t.Error(a)
	}
}

// A port may go, or be closed, before the successor has had time for the program of before:
// there is nothing to replace then, and the node goes on.
func TestSettleWithoutThePortsOfBefore(t *testing.T) {
	s := newSite(t, 1)
	x := s.succession(t)
	s.cfg.Seed = 100 // the predecessor's programs are others
	next, err := x.prepare(nil)
	must(t, err)
	snapshot, err := x.node.Stop()
	must(t, err)
	must(t, next.Load(snapshot))
	last, old := x.node.Release(), x.end
	x.node = next
	x.run()
	old()
	must(t, next.SetPorts(s.cfg.Ports[:1])) // without the uplink
	next.opening.Lock()
	next.closePort(next.devices[0], errors.New("its interface is gone"))
	next.opening.Unlock()
	s.leaf.Do(t, func() {
		next.Settle(last)
		next.followDevices()
	})
	if p := next.PortInfos()[0]; !p.Open || next.devices[0].foreign {
		t.Errorf("the port that came back is open: %t, with a program of before: %t; %s", p.Open, next.devices[0].foreign, p.Error)
	}
}

// Tables that come while a successor reads what its predecessor has learned do not meet
// it in the workers' tables. The race detector sees what would.
func TestPrepareWhileTablesCome(t *testing.T) {
	s := newSite(t, 1)
	x := s.succession(t)
	send(t, s.host, s.far, "172.16.0.2:7000", 10, 100).check(t, "before")
	x.node.workers[0].call(func() {
		for i := range 2000 {
			x.node.workers[0].leaf.fdb.LearnKey(overlay.MakeFDBKey(0, anAddress(i)), overlay.DestLocal(0, 0), now())
		}
	})
	next, err := x.prepare(nil)
	must(t, err)
	early, done := x.node.Early(), make(chan struct{})
	go func() {
		defer close(done)
		for i := range 200 {
			tables := *s.tables
			tables.Static = []StaticMAC{{MAC: anAddress(5000 + i), Port: 0}}
			must(t, next.Publish(&tables))
		}
	}()
	must(t, next.Prepare(t.Context(), early))
	<-done
	must(t, next.Close())
	x.node.Resume()
}

// Whoever has waited for the end of a hand-over to change ports leaves them alone if they
// are a successor's by then: to detach the program of a closed port would open it.
func TestHandedNodeLeavesPortsAlone(t *testing.T) {
	s := newSite(t, 1)
	s.cfg.Ports[0].FailOpen = false
	x := s.succession(t)
	next, err := x.prepare(nil)
	must(t, err)
	snapshot, err := x.node.Stop()
	must(t, err)
	must(t, next.Load(snapshot))
	old, end := x.node, x.end
	changed := make(chan error)
	go func() {
		open := slices.Clone(s.cfg.Ports)
		open[0].FailOpen = true
		var err error
		s.leaf.Do(t, func() { err = old.SetPorts(open) })
		changed <- err
	}()
	time.Sleep(10 * time.Millisecond) // it waits
	last := old.Release()
	x.node = next
	x.run()
	if err := <-changed; err == nil || !strings.Contains(err.Error(), "successor") {
		t.Errorf("a node that was handed over takes other ports: %v", err)
	}
	end()
	s.leaf.Do(t, func() { next.Settle(last) })
	if p := s.leaf.Link(t, "acc0").Attrs().Xdp; p == nil || !p.Attached {
		t.Error("the successor's port has lost its program")
	}
}
