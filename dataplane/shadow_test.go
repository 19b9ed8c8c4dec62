package dataplane

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/units"
	"github.com/loomfabric/loom/leaf"
	"github.com/loomfabric/loom/overlay"
)

// shadowed sends random bursts under a scheme, with a second class that goes by queues, and
// returns what left.
func shadowed(t *testing.T, scheme, shadow string, seed uint64) (sent [][][]byte, stats []leaf.ShadowStats) {
	rng := rand.New(rand.NewPCG(seed, 1))
	cfg := leafConfig()
	cfg.Scheme, cfg.Options.Shadow = scheme, shadow
	cfg.Classes = []Class{{Port: units.Ports{First: 3, Last: 4}, Scheme: "drill", Options: balance.Options{Shadow: shadow}}}
	for k := range cfg.Ports {
		cfg.Ports[k].Egress.LinkRate, cfg.Ports[k].Egress.Rate, cfg.Ports[k].Egress.Burst = 1e9, 1e9, 3000
	}
	r := known(t, cfg)
	for range 40 {
		r.prove(0)
		var burst [][]byte
		for range 1 + rng.IntN(20) {
			burst = append(burst, udp4(hostB, hostA, 0, uint16(rng.IntN(8)), 10+rng.IntN(900)))
		}
		sent = append(sent, slices.Concat(r.send(acc0, burst...)...))
		r.now = r.now.Add(time.Duration(rng.IntN(1000)) * time.Microsecond)
	}
	s := r.w.snapshot()
	return sent, (&Stats{Workers: []WorkerStats{s}}).Sum().Shadows
}

// Whatever scheme has whatever shadow: what leaves is the same, byte for byte, as without.
func TestShadowChangesNothing(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	for _, scheme := range balance.Names() {
		plain, none := shadowed(t, scheme, "", seed)
		if len(none) != 0 {
			t.Fatalf("%s without a shadow: %+v", scheme, none)
		}
		for _, shadow := range []string{"letflow", "conga", "drill"} {
			sent, stats := shadowed(t, scheme, shadow, seed)
			for round := range plain {
				if !slices.EqualFunc(plain[round], sent[round], bytes.Equal) {
					t.Fatalf("%s: burst %d left otherwise under shadow %s", scheme, round, shadow)
				}
			}
			if len(stats) != 2 || stats[0].Scheme != "drill" || stats[1].Shadow != shadow || stats[1].Frames == 0 {
				t.Errorf("%s with shadow %s: %+v", scheme, shadow, stats)
			}
		}
	}
}

// A shadow of a scheme by the same seed agrees with it always, if nothing is random; a
// shadow that is better balanced says so.
func TestShadowPredicts(t *testing.T) {
	cfg := leafConfig()
	cfg.Scheme, cfg.Options.Shadow = "ecmp", "ecmp"
	r := known(t, cfg)
	send := func(r *rig) {
		for i := range 400 {
			r.send(acc0, udp4(hostB, hostA, 0, uint16(i%3), 1000))
		}
	}
	send(r)
	same := r.w.snapshot().Shadows[0]
	if same.Frames != 400 || same.Agreed != 400 || same.Sent != same.Would || same.Sent[0]+same.Sent[1] != 400*1042 {
		t.Errorf("ecmp beside itself: %+v", same)
	}
	cfg.Options.Shadow = "spray"
	r = known(t, cfg)
	send(r)
	s := r.w.snapshot().Shadows[0]
	if sent, would := s.Imbalance(); would > 0.3 || sent < 0.5 || s.Agreed == 400 {
		t.Errorf("imbalance %v, of spraying %v: %+v", sent, would, s)
	}
	cfg.Options.Shadow = "reed"
	w, err := newWorker(0, r.w.cfg, r.w.area, r.w.pool, testFrameSize, r.w.shared)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.leaf.makeClasses(cfg.rules(), nil); err == nil || !strings.Contains(err.Error(), "reed cannot be a shadow") {
		t.Errorf("reed as a shadow: %v", err)
	}
}

// BenchmarkShadow is BenchmarkLeafSchemes' work without a shadow and with one: letflow's
// costs a look into a table of flowlets, CONGA's decides besides.
func BenchmarkShadow(b *testing.B) {
	for _, scheme := range []string{"ecmp", "conga"} {
		for _, shadow := range []string{"", "ecmp", "letflow", "conga"} {
			b.Run(fmt.Sprintf("%s/shadow=%s", scheme, shadow), func(b *testing.B) {
				cfg := leafConfig()
				cfg.Scheme, cfg.Options.Shadow = scheme, shadow
				for i := range cfg.Ports {
					cfg.Ports[i].Egress.LinkRate = 40e9
				}
				r := known(b, cfg)
				meta := overlay.Meta{Magic: overlay.MetaMagic, Flags: overlay.FlagIPv4 | overlay.FlagPorts, L3: 14, L4: 34}
				bench(b, r, acc0, func(size int) []byte { return udp4(hostB, hostA, 0, 1, size-42) }, []int{64}, 1<<10, meta,
					func(f []byte, flow uint32) { binary.BigEndian.PutUint16(f[34:], uint16(flow)) }, nil)
			})
		}
	}
}
