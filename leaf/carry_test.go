package leaf

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/internal/snapshot"
	"github.com/loomfabric/loom/liveness"
	"github.com/loomfabric/loom/overlay"
)

// body returns what a leaf's parts leave of a peer.
func body(s *Shared, l *Leaf[int], peer uint16) []byte {
	var w snapshot.Writer
	w.Begin("peer", 1)
	s.SavePeer(&w, peer)
	l.SavePeer(&w, peer)
	w.End()
	all, err := snapshot.Sections(w.Bytes())
	if err != nil {
		panic(err)
	}
	return all[0].Body
}

func carryLeaf(t *testing.T, secret Secret) (*Shared, *Leaf[int]) {
	t.Helper()
	p := congestion.Datacenter()
	s := NewShared(8, 1, secret, &p)
	l, err := New[int](Config{Seed: 1, Leaves: 8, Ports: 2, Uplinks: 4, Classes: []ClassConfig{{Scheme: "conga"}}}, s)
	if err != nil {
		t.Fatal(err)
	}
	return s, l
}

// A peer is in the successor what it was, under another number: it is capable, its
// metrics and what is to be fed back are there, paths that do not deliver are kept off,
// counts and judgements go on. To the peer the leaf is the same.
func TestCarryPeer(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	s, l := carryLeaf(t, Secret{1, 2})
	now := mono.Time(time.Hour)
	const peer, tag = 3, 2
	for range 200 {
		now += mono.Time(rng.IntN(1_000_000))
		f := overlay.Fabric{Capable: true, LBTag: uint8(rng.IntN(4)), CE: uint8(rng.IntN(8)), FBValid: true, FBTag: uint8(rng.IntN(4)), FBMetric: uint8(rng.IntN(8))}
		l.Accept(now, peer, &f)
		l.Sent(peer, uint8(rng.IntN(4)))
	}
	s.Capable.Confirm(peer, now)
	for round := uint32(1); round < 20; round++ {
		for path := range uint8(4) {
			h := overlay.Hello{Boot: 7, Round: round, Present: 15, Silent: 1 << tag, Nonce: 99, Sent: round * 10}
			if path != 1 || round < 10 { // its path 1 goes dead
				s.Paths.Hear(peer, path, &h, overlay.TstampOf(now), l.traffic.Came(peer, path), now)
			}
		}
		l.judge.Begin()
		l.judge.From(peer)
		l.judge.To(peer, 15, now)
		now += mono.Time(10 * time.Millisecond)
	}
	s.Paths.RoundTrip(peer, 1, 123*time.Microsecond)
	if s.Paths.Dead(peer) != 1<<tag || l.judge.From(peer).Silent == 0 {
		t.Fatalf("dead %#x, report %+v: nothing to carry", s.Paths.Dead(peer), l.judge.From(peer))
	}
	left := body(s, l, peer)
	s2, l2 := carryLeaf(t, Secret{3, 4})
	var w snapshot.Writer
	w.Begin("own", 1)
	s.Save(&w)
	w.End()
	own, err := snapshot.Sections(w.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	r := snapshot.NewReader(own[0].Body)
	if s2.Load(r); r.Done() != nil {
		t.Fatal(r.Done())
	}
	r = snapshot.NewReader(left)
	s2.LoadPeer(r, 5)
	if l2.LoadPeer(r, 5); r.Done() != nil {
		t.Fatal(r.Done())
	}
	if !bytes.Equal(body(s2, l2, 5), left) {
		t.Error("what was loaded is not what was saved")
	}
	if s2.boot != s.boot || s2.nonce(5, 70) != s.nonce(5, 70) || s2.Paths.Round() != s.Paths.Round() {
		t.Error("to its peers the leaf is another one")
	}
	if !s2.Capable.Capable(5, now) || s2.Paths.Dead(5) != 1<<tag || s2.Paths.Trip(5, 1) != 123*time.Microsecond {
		t.Errorf("capable %v, dead %#x, round trip %v", s2.Capable.Capable(5, now), s2.Paths.Dead(5), s2.Paths.Trip(5, 1))
	}
	if got, want := l2.judge.From(5), l.judge.From(peer); got != want {
		t.Errorf("the peer is told %+v, want %+v", got, want)
	}
	var a, b [congestion.MaxTags]uint8
	s.To.Metrics(peer, now, &a)
	s2.To.Metrics(5, now, &b)
	if a != b {
		t.Errorf("metrics %v, want %v", b, a)
	}
	for n := range len(left) {
		r := snapshot.NewReader(left[:n])
		s3, l3 := carryLeaf(t, Secret{5, 6})
		s3.LoadPeer(r, 0)
		if l3.LoadPeer(r, 0); r.Done() == nil {
			t.Fatalf("%d of %d bytes were taken for all", n, len(left))
		}
		if n > 40 {
			break // each is one more table to make
		}
	}
	spoilt := bytes.Clone(left)
	spoilt[len(spoilt)-16*22] = uint8(liveness.Narrow) + 1 // a path's state
	s3, l3 := carryLeaf(t, Secret{5, 6})
	r = snapshot.NewReader(spoilt)
	s3.LoadPeer(r, 0)
	if l3.LoadPeer(r, 0); r.Err() == nil {
		t.Error("a path is in a state that there is not")
	}
}

// Flows that receivers know by numbers, and that start anew, make it another leaf to its
// peers; its nonces stay. Under a scheme without numbers nothing changes.
func TestReboot(t *testing.T) {
	s, l := carryLeaf(t, Secret{1, 2})
	if !l.Continues(nil) {
		t.Error("conga numbers no packets")
	}
	classes, err := l.MakeClasses([]ClassConfig{{Scheme: "reed"}})
	if err != nil {
		t.Fatal(err)
	}
	l.SetClasses(classes)
	if l.Continues(map[string]bool{"flows/0/conga": true}) || !l.Continues(map[string]bool{"flows/0/reed": true}) {
		t.Error("flows of reed go on without their numbers, or do not with them")
	}
	boot, nonce := s.boot, s.nonce(3, 1)
	if s.Reboot(); s.boot == boot || s.nonce(3, 1) != nonce {
		t.Error("the leaf is the same one, or its nonces are others")
	}
}
