package frr

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// ends are the ways in which a leafd goes and comes, and what is promised of each on an
// idle machine: for how long a flow may be without an answer.
var ends = []struct {
	name     string
	do       func(*bed)
	promised time.Duration
}{
	{"SIGTERM", func(b *bed) { b.stopDaemon("L0", unix.SIGTERM) }, 100 * time.Millisecond},
	{"start", func(b *bed) { b.startDaemon("L0") }, 0},
	{"kill -9", func(b *bed) { b.stopDaemon("L0", unix.SIGKILL) }, 250 * time.Millisecond},
	{"start after kill -9", func(b *bed) { b.startDaemon("L0") }, 0},
}

// end has L0's leafd go and come twice under the flows of two hosts. The kernel's EVPN
// leaf carries on each time, in ten times what is promised of an idle machine, and a bit: a
// start may lose some where it takes seconds.
func (b *bed) end(t *testing.T) {
	p := startProbe(t, b.ns["h0"], b.ns["h2"], b.addr("h2"), 8, 4*time.Millisecond)
	for _, e := range ends {
		p.works(late)
		start := time.Now()
		e.do(b)
		p.works(late)
		l := p.loss(start, time.Now().Add(-200*time.Millisecond))
		t.Logf("%s: %v", e.name, l)
		if most := 10*e.promised + slack; l.outage > most || l.duplicates > 0 {
			t.Errorf("%s: %v, want %v at most and no duplicates", e.name, l, most)
		}
	}
	p.end()
}

// TestEnd: a leafd and the kernel's EVPN leaf beside it, which leafd follows.
func TestEnd(t *testing.T) {
	t.Parallel()
	kernels := []string{"any Linux"}
	if *all {
		kernels = append(kernels, "one that reads the header")
	}
	for i, name := range kernels {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			up(t, fmt.Sprintf("%sreserved_bits: %v\n", evpn+planes["loom"], i == 1)).end(t)
		})
	}
}
