package congestion

// Claims of CONGA (Alizadeh et al., SIGCOMM 2014) about flowlets, and how the
// implementation meets them.

import (
	"testing"
	"time"
	"unsafe"

	"github.com/loomfabric/loom/internal/mono"
)

// §3.4: "If the entry is valid (valid_bit == 1), the flowlet is active and the
// packet is sent on the port indicated in the entry. If the entry is not valid,
// the incoming packet starts a new flowlet. In this case, we make a load
// balancing decision [...] and cache the result in the table for use by
// subsequent packets."
func TestPaperFlowletKeepsItsPort(t *testing.T) {
	for _, d := range []Detector{Timestamp, AgeBit} {
		f := NewFlowlets(DefaultFlowlets, gap, d)
		const flow = 0xdecafbad
		if uplink, active := f.Lookup(flow, 0); active || uplink != NoUplink {
			t.Errorf("%v: a flow never seen has uplink %d, active %v", d, uplink, active)
		}
		f.Set(flow, 11, 0)
		now := mono.Time(0)
		for range 1000 { // half a second of packets, none of them late
			now += mono.Time(gap)
			if uplink, active := f.Packet(flow, f.Stamp(now)); !active || uplink != 11 {
				t.Fatalf("%v: uplink %d, active %v after %v", d, uplink, active, now.Sub(0))
			}
		}
		// The port stays known when the flowlet has ended; §3.5 prefers it.
		if uplink, active := f.Lookup(flow, now+mono.Time(time.Second)); active || uplink != 11 {
			t.Errorf("%v: after a second's pause uplink %d, active %v", d, uplink, active)
		}
	}
}

// §3.4: "Note that a single age bit allows us to detect gaps between Tfl and
// 2Tfl. While not as accurate as using full timestamps [...]".
//
// For every phase of the timer: a gap of T_fl never ends a flowlet, one of
// 2·T_fl always does, and in between it depends. With full timestamps the edge
// is T_fl exactly.
func TestPaperGapsDetected(t *testing.T) {
	const steps = 100
	ended := func(d Detector, pause mono.Time) (n int) {
		for phase := range steps {
			f := NewFlowlets(1, gap, d)
			start := mono.Time(phase) * mono.Time(gap) / steps
			f.Set(0, 1, start)
			if _, active := f.Lookup(0, start+pause); !active {
				n++
			}
		}
		return n
	}
	for _, tt := range []struct {
		d     Detector
		pause time.Duration
		want  int
	}{
		{AgeBit, gap, 0},
		{AgeBit, gap * 5 / 4, steps / 4},
		{AgeBit, gap * 3 / 2, steps / 2},
		{AgeBit, 2 * gap, steps},
		{Timestamp, gap, 0},
		{Timestamp, gap + 1, steps},
		{Timestamp, 2 * gap, steps},
	} {
		if got := ended(tt.d, mono.Time(tt.pause)); got < tt.want-1 || got > tt.want+1 {
			t.Errorf("%v: a pause of %v ended the flowlet in %d of %d phases, want %d", tt.d, tt.pause, got, steps, tt.want)
		}
	}
}

// §3.4: "this requires far fewer bits allowing us to maintain a very large
// number of entries in the table (64K in our implementation) at low cost."
//
// We differ: eight bytes an entry, for either detector. Memory is not what is
// short here, and a second word would be a second cache miss.
func TestPaperTableIsSmall(t *testing.T) {
	f := NewFlowlets(DefaultFlowlets, gap, AgeBit)
	if size := uintptr(f.Len()) * unsafe.Sizeof(f.entries[0]); size != 512<<10 {
		t.Errorf("table of %d bytes, want 512 KiB", size)
	}
}

// §3.4, Remark 1: "Although with hashing, flows may collide in the Flowlet
// Table, this is not a big concern. Collisions simply imply some load balancing
// opportunities are lost".
func TestPaperCollision(t *testing.T) {
	f := NewFlowlets(64, gap, Timestamp)
	const a, b = 7, 7 + 64
	f.Set(a, 3, 0)
	if uplink, active := f.Lookup(b, 100); !active || uplink != 3 {
		t.Errorf("the flow that shares the entry: uplink %d, active %v; want 3, true", uplink, active)
	}
}
