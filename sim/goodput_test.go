package sim

import (
	"math"
	"testing"

	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/measure"
)

// near reports a number that is further from what it should be than a share.
func near(t *testing.T, what string, got, want, share float64) {
	t.Helper()
	if math.Abs(got-want) > share*math.Abs(want) {
		t.Errorf("%s: %g, want %g within %g %%", what, got, want, 100*share)
	}
}

// endless is one flow without an end from a host of one leaf to one of another.
func endless(kind string) *Spec {
	s := small()
	s.Workloads = []vocab.Workload{{Type: vocab.Bulk, From: []string{"h0"}, To: []string{"h8"}}}
	s.Transport.Type = kind
	return s
}

// TestEndless: a flow without an end fills its host's link, of which headers take
// their share, in the window, whatever came before.
func TestEndless(t *testing.T) {
	for kind, share := range map[string]float64{"tcp": 1448. / 1514, "rdma": 1000. / 1058} {
		for _, warmup := range []float64{0, 500, 1500} {
			s := endless(kind)
			s.Warmup = us(warmup)
			r := must(t, s)
			near(t, "the end", r.LengthS, (warmup+2000)*1e-6, 1e-12)
			if r.End != endDone || r.Flows != 0 || r.Unfinished != 0 || len(r.FCT) != 0 {
				t.Errorf("%s: ended %q after %g s with %d flows, %d unfinished", kind, r.End, r.LengthS, r.Flows, r.Unfinished)
			}
			w := r.Workloads[0]
			if w.Flows != 1 || w.GoodputBps != r.GoodputBps {
				t.Errorf("%s: %d flows got %g, all workloads %g", kind, w.Flows, w.GoodputBps, r.GoodputBps)
			}
			lost := 0.06 // of the window: a handshake, and slow start
			if warmup > 0 {
				lost = 0.001
			}
			near(t, kind, w.GoodputBps, share*10e9, lost)
		}
	}
}

// TestWindow counts datagrams, which are at a rate that is known, in windows that
// begin and end at any time, with workloads that do, too.
func TestWindow(t *testing.T) {
	const rate, size = 1e9, 1250 // one in 10 us
	for _, c := range []struct {
		warmup, duration, start, length float64
		window, want                    float64 // bit/s, of the run and the workload
	}{
		{0, 1000, 0, 0, rate, rate},
		{700, 1000, 0, 0, rate, rate},
		{700, 1000, 200, 0, rate, rate},
		{0, 1000, 500, 0, rate / 2, rate},
		{500, 1000, 0, 1000, rate / 2, rate},
		{500, 1000, 1000, 250, rate / 4, rate},
		{500, 1000, 0, 400, 0, 0},
	} {
		s := small()
		s.Warmup, s.Duration = us(c.warmup), us(c.duration)
		s.Workloads = []vocab.Workload{{Type: vocab.UDP, From: []string{"h0"}, To: []string{"h8"}, Rate: rate, Size: size, Start: us(c.start), Duration: us(c.length)}}
		r := must(t, s)
		// One datagram more or less, and what is on its way.
		if d := math.Abs(r.GoodputBps-c.window) * c.duration * 1e-6 / 8; d > 2*size {
			t.Errorf("%+v: %g bit/s in the window", c, r.GoodputBps)
		}
		if d := math.Abs(r.Workloads[0].GoodputBps - c.want); d > c.want/10+1 {
			t.Errorf("%+v: the workload got %g bit/s", c, r.Workloads[0].GoodputBps)
		}
		sent := float64(r.Transport["udp_datagrams"])
		until := c.warmup + c.duration
		if c.length > 0 {
			until = min(until, c.start+c.length)
		}
		if want := (until - c.start) / 10; math.Abs(sent-want) > 1 {
			t.Errorf("%+v: %g datagrams, want %g", c, sent, want)
		}
	}
}

// TestBulkStops: flows without an end stop when their workload's time is up, and
// leave the link to others.
func TestBulkStops(t *testing.T) {
	for _, kind := range []string{"tcp", "rdma"} {
		s := endless(kind)
		s.Duration = us(4000)
		s.Workloads[0].Duration = us(2000)
		// vocab.Bulk, with a size: the last workload's flow can end only if it gets the link.
		s.Workloads = append(s.Workloads, vocab.Workload{Name: "late", Type: vocab.Bulk, From: []string{"h1"}, To: []string{"h8"}, Start: us(2000), Bytes: 2e6})
		r := must(t, s)
		near(t, kind+": the first workload", r.Workloads[0].GoodputBps, 9.5e9, 0.07)
		near(t, kind+": the second workload", r.Workloads[1].GoodputBps, 8e9, 0.001)
		near(t, kind+": both", r.GoodputBps, (9.5e9+8e9)/2, 0.05)
		if r.End != endDone || r.Unfinished != 0 || r.Flows != 1 || r.FCT[0].MeanS > 2e-3 {
			t.Errorf("%s: ended %q, %d of %d flows unfinished, %+v", kind, r.End, r.Unfinished, r.Flows, r.FCT)
		}
	}
}

// TestIncast: a client alone asks lossless servers for more than its link carries:
// its effective throughput is the share of payload, but for the way there.
func TestIncast(t *testing.T) {
	s := lossless(2)
	s.Topology.Leaves, s.Topology.Buffer, s.Transport.CongestionControl = 3, 3e6, "none"
	s.Topology.mark(vocab.ECN{})
	s.Workloads = []vocab.Workload{{Type: vocab.Incast, From: []string{"h0"}, FanIn: 6, Bytes: 3e6, Repeat: 4, Connections: 1}}
	s.Duration = us(5000)
	r := must(t, s)
	// 3000 packets of 1058 bytes at 100 Gbit/s take 253.9 us; the last ones come
	// some 10 us after they were sent, and the ACK has to return.
	w := r.Workloads[0]
	if want := 100 * 3e6 * 8 / 100e9 / (253.9e-6 + 10e-6); math.Abs(w.EffectivePercent-want) > 2 || w.EffectivePercent > 100*1000./1058 {
		t.Errorf("effective throughput %g %%, want about %g", w.EffectivePercent, want)
	}
	if w.Flows != 24 || r.Flows != 24 || w.Unfinished != 0 || r.End != endDone || len(r.Drops) != 0 {
		t.Errorf("%d flows, %d of %d unfinished, ended %q, dropped %v", r.Flows, w.Unfinished, w.Flows, r.End, r.Drops)
	}
	if r.PFC["pauses"] == 0 || r.PFC["paused_ns"] == 0 {
		t.Errorf("PFC %v: 6 hosts send to one at line rate", r.PFC)
	}
}

// TestHeadroom: PFC loses nothing, however large packets are.
func TestHeadroom(t *testing.T) {
	for name, change := range map[string]func(*Spec){
		"rdma":  func(*Spec) {},
		"4096":  func(s *Spec) { s.Transport.Payload = 4096 },
		"jumbo": func(s *Spec) { s.Transport = Transport{MTU: 9000} },
		"datagrams": func(s *Spec) {
			s.Workloads = []vocab.Workload{{Type: vocab.UDP, From: []string{"L0", "L1"}, To: []string{"h8", "h9"}, Rate: 40e9, Size: 9000}}
		},
	} {
		s := lossless(3)
		s.Topology.Buffer, s.Duration = 4e6, us(300)
		s.Topology.mark(vocab.ECN{})
		s.Workloads[0].Load, s.Workloads[0].Pairs = 95, "racks"
		change(s)
		r := must(t, s)
		delete(r.Drops, "no_flow") // they were there
		if len(r.Drops) > 0 || r.PFC["pauses"] == 0 {
			t.Errorf("%s: dropped %v; PFC %v", name, r.Drops, r.PFC)
		}
	}
}

// TestMix: datagrams at a constant rate and TCP share the link to one host: it is
// full, and datagrams do not yield.
func TestMix(t *testing.T) {
	s := small()
	s.Topology.queue(200_000)
	s.Warmup, s.Duration = us(3000), us(10_000)
	s.Transport.MinRTO = us(1000)
	s.Workloads = []vocab.Workload{
		{Name: "tcp", Type: vocab.Bulk, From: []string{"h0"}, To: []string{"h8"}},
		{Name: "udp", Type: vocab.UDP, From: []string{"h1"}, To: []string{"h8"}, Rate: 4e9, Size: 1400},
	}
	r := must(t, s)
	tcp, udp := r.Workloads[0].GoodputBps, r.Workloads[1].GoodputBps
	near(t, "the link", tcp*1514/1448+udp*1442/1400, 10e9, 0.03)
	near(t, "datagrams", udp, 4e9, 0.05)
	near(t, "both", r.GoodputBps, tcp+udp, 1e-9)
	got, lost := r.Transport["udp_received"], r.Drops["queue_full"]
	if got == 0 || r.Transport["udp_goodput_bytes"] != got*1400 || lost == 0 || r.Transport["retransmits"] == 0 {
		t.Errorf("%d datagrams received, %d packets dropped; %v", got, lost, r.Transport)
	}
}

// TestShares: each uplink's bytes are what its port sent in the window, and
// percentages add up.
func TestShares(t *testing.T) {
	s := endless("tcp")
	s.Warmup = us(1000)
	s.Measure = Measure{Imbalance: us(50), Queues: []string{"L0->S0", "L1->h8", "leaves"}}
	r := must(t, s)
	sum, used := 0., 0
	for _, u := range r.Uplinks {
		if u.Link[:2] == "L0" {
			sum += u.Percent
			if u.Percent == 100 {
				used++
				// 2 ms at 10 Gbit/s, and what the overlay adds.
				near(t, u.Link, float64(u.Bytes), 2e-3*10e9/8*1564/1514, 0.002)
			}
		}
	}
	if len(r.Uplinks) != 4 || sum != 100 || used != 1 {
		t.Errorf("uplinks %+v: want one of L0's two with all", r.Uplinks)
	}
	// All on one of two uplinks: (max-min)/mean is 2. L1 sends acknowledgements only.
	if len(r.Imbalance) != 2 || r.Imbalance[1].Name != "L0" || r.Imbalance[1].P50 != 2 || r.Imbalance[1].N != 40 {
		t.Errorf("imbalance %+v", r.Imbalance)
	}
	if len(r.Queues) != 2+4 || r.Queues[1].Name != "L1->h8" || r.Queues[0].Max != 0 && r.Queues[0].Max < 1564 {
		t.Errorf("queues %+v", r.Queues)
	}
}

// TestPool: with a pool no flow waits behind another one, and connections are
// used again.
func TestPool(t *testing.T) {
	s := small()
	s.Workloads = []vocab.Workload{{Sizes: "enterprise", Load: 30, Pool: true, From: []string{"h0", "h1"}, To: []string{"h8", "h9"}, Of: "hosts", Scale: 0.02}}
	s.Topology.queue(0)
	s.Duration = us(20_000) // no SYN is lost, to be sent again a second later
	r, res := parts(t, s)
	opened := r.pooled
	if res.Unfinished != 0 || res.Flows < 100 || opened < 5 || opened*4 > res.Flows {
		t.Fatalf("%d flows over %d connections, %d unfinished", res.Flows, opened, res.Unfinished)
	}
	if syns := res.Transport["syns"]; syns != uint64(opened) {
		t.Errorf("%d SYNs for %d connections", syns, opened)
	}
	idle := 0
	for _, free := range r.pools {
		idle += len(free)
	}
	if idle != opened {
		t.Errorf("%d of %d connections are idle after the run", idle, opened)
	}
	s.Workloads[0].Pool, s.Workloads[0].Connections = false, 1
	one := must(t, s)
	if one.Transport["syns"] > 4 || one.FCT[0].MeanS <= res.FCT[0].MeanS {
		t.Errorf("one connection a pair, %d in all: %g s in the mean; a pool: %g", one.Transport["syns"], one.FCT[0].MeanS, res.FCT[0].MeanS)
	}
}

// TestRepairedLink: what routes learn, and what a link that is down at the start
// does to loads: they are stated as if it were up (CONGA §5.2.2).
func TestRepairedLink(t *testing.T) {
	s := small()
	s.Topology.Links.Rate = 20e9
	whole := must(t, s)
	s.Faults = []vocab.Fault{{Fail: "L0-S0.0"}}
	down := must(t, s)
	if whole.Flows != down.Flows {
		t.Errorf("%d flows with a link down, %d without", down.Flows, whole.Flows)
	}
	s.Faults = append(s.Faults, vocab.Fault{At: us(1000), Restore: "L0-S0.0"})
	up := must(t, s)
	bytes := func(r *measure.Result) uint64 { return r.Uplinks[0].Bytes }
	if bytes(down) != 0 || bytes(up) == 0 || bytes(up) >= bytes(whole) {
		t.Errorf("L0-S0.0 carried %d bytes, %d while down, %d when it came back", bytes(whole), bytes(down), bytes(up))
	}
}
