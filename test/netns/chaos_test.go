package netns

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/testenv"
)

// seedVar replays a run of TestChaos.
const seedVar = "LOOM_SEED"

// TestChaos: under load on two workers, interfaces vanish, links flap,
// neighbours are forgotten and daemons die, in an order that a seed decides. In
// the end traffic flows as before. leaf0 runs all the time and has few buffers,
// so that some lost with each event would be missed.
func TestChaos(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if v := os.Getenv(seedVar); v != "" {
		var err error
		if seed, err = strconv.ParseUint(v, 10, 64); err != nil {
			t.Fatalf("%s: %v", seedVar, err)
		}
	}
	t.Logf("%s=%d", seedVar, seed)
	random := rand.New(rand.NewPCG(seed, 0))

	s := newSite(t, 2)
	host1 := testenv.NewNamespace(t, "lnhost")
	s.access(s.far, host1, addr1)
	s.ring, s.frames = 256, 1024
	spine, leaf0, leaf1 := s.runSpine(), s.runLeaf("leaf0", s.leaf0, vtep0, vtep1), s.runLeaf("leaf1", s.far, vtep1, vtep0)
	for range 3 {
		startStream(t, s.host0, host1, addr1, 4<<20)
		startStream(t, host1, s.host0, addr0, 4<<20)
	}
	// Connections may break; datagrams go on whatever happens.
	startProbe(t, s.host0, host1, addr1, 32, 500*time.Microsecond)
	startProbe(t, host1, s.host0, addr0, 32, 500*time.Microsecond)

	kill := func(d *daemon) {
		_ = d.signal(unix.SIGKILL)
		d.start()
		d.ready()
	}
	uplink := func() {
		s.leaf0.DeleteLink(t, "up0")
		pause(random)
		s.uplink0()
	}
	events := []struct {
		name string
		do   func()
	}{
		{"leaf0's uplink vanishes", uplink},
		{"leaf0's access port vanishes", func() {
			s.leaf0.DeleteLink(t, "acc0")
			pause(random)
			s.access(s.leaf0, s.host0, addr0)
		}},
		{"leaf0's uplink flaps", func() {
			s.leaf0.SetUp(t, "up0", false)
			pause(random)
			s.leaf0.SetUp(t, "up0", true)
			s.routeTo(s.leaf0, vtep1, "10.1.0.1") // the kernel took it away with the link
		}},
		{"the spine's port flaps", func() {
			s.spine.SetUp(t, "dn0", false)
			pause(random)
			s.spine.SetUp(t, "dn0", true)
			s.routeTo(s.spine, vtep0, "10.1.0.0")
		}},
		{"leaf1 is killed", func() { kill(leaf1) }},
		{"the spine is killed", func() { kill(spine) }},
		{"leaf1 stops in order", func() {
			leaf1.stop()
			leaf1.start()
			leaf1.ready()
		}},
	}
	var order []int
	for range 3 {
		order = append(order, random.Perm(len(events))...)
	}
	for i, n := range order {
		e := events[n]
		e.do()
		pause(random)
		for _, d := range []*daemon{spine, leaf0, leaf1} {
			d.balanced()
		}
		if t.Failed() {
			t.Fatalf("after event %d: %s", i, e.name)
		}
	}
	s.recovered(host1, spine, leaf0, leaf1)
}

// recovered checks that every port is open and every worker at work.
func (s *site) recovered(host1 *testenv.Namespace, all ...*daemon) {
	s.t.Helper()
	for _, d := range all {
		for _, p := range d.stats().Ports {
			d.open(p.Name, true)
		}
	}
	for i := range 8 { // both workers, both ways
		if err := tryTransfer(s.t, s.host0, host1, addr1, 256<<10, 20*time.Second); err != nil {
			s.t.Fatalf("transfer %d after all events: %v", i, err)
		}
	}
	for _, d := range all {
		for _, b := range d.stats().Balance {
			if b.Received == 0 || b.Sent == 0 {
				s.t.Errorf("worker %d of %s does nothing: %+v", b.Worker, d.name, b)
			}
		}
	}
}

func pause(random *rand.Rand) { time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond) }
