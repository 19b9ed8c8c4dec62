package dataplane

import (
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

// outerECN has an access port's program put a TCP segment of a codepoint into a tunnel, and
// returns the outer one. The outer header is right.
func (r *fastLeafRig) outerECN(ecn byte) byte {
	r.t.Helper()
	b, _ := r.wraps(tcp4(hostB, hostA, 0x28|ecn, uint16(r.flow), false))
	r.flow++
	ip := overlay.IPv4(b[overlay.EthernetLen:])
	if ip.Checksum() != checksumOf(ip[:20]) {
		r.t.Fatalf("the outer header %x has a wrong checksum", ip[:20])
	}
	return ip.TOS() & 3
}

// checksumOf returns what an IPv4 header's checksum has to be.
func checksumOf(header []byte) uint16 {
	h := append([]byte(nil), header...)
	fixChecksum(h)
	return overlay.IPv4(h).Checksum()
}

// Frames whose transport does ECN are marked with the probability that user space has set for
// the port, and no others (RFC 3168 §5); what is marked already stays so.
func TestFastAccessMarksCongestion(t *testing.T) {
	r := newFastLeafSample(t)
	for _, ecn := range []byte{0, 1, 2, 3} {
		if got := r.outerECN(ecn); got != ecn {
			t.Errorf("codepoint %d becomes %d though nothing is congested", ecn, got)
		}
	}
	chance := func(p float64) {
		r.tables.SetChance(int(up0), p)
		r.tables.SetChance(int(up1), p)
	}
	marked := func() uint64 {
		s := r.fast.stats()
		return s.Ports[up0].Marked.Frames + s.Ports[up1].Marked.Frames
	}
	chance(1)
	for ecn, want := range []byte{0, 3, 3, 3} {
		if got := r.outerECN(byte(ecn)); got != want {
			t.Errorf("codepoint %d becomes %d on a full link, want %d", ecn, got, want)
		}
	}
	if n := marked(); n != 2 {
		t.Errorf("%d frames are counted as marked, want 2", n)
	}
	chance(0.25)
	for range 800 {
		r.outerECN(2)
	}
	if n := marked() - 2; n < 120 || n > 290 {
		t.Errorf("%d of 800 frames are marked at a quarter", n)
	}
}

// A spine marks what it forwards, and keeps the header right.
func TestFastPathMarksCongestion(t *testing.T) {
	r := newFastRig(t, spineConfig(), spineTables(), 1)
	for port := range len(spineTables().Ports) {
		r.tables.SetChance(port, 1)
	}
	for ecn, want := range []byte{0, 3, 3, 3} {
		b := viaSpine(vtep2, 7, nil)
		ip := overlay.IPv4(b[overlay.EthernetLen:])
		ip.SetTOS(0x40 | byte(ecn))
		fixChecksum(ip[:20])
		opts := ebpf.RunOptions{Data: b, DataOut: make([]byte, 4096)}
		before := slowsOf(r.tables, dn0)
		if _, err := r.progs[dn0].Run(&opts); err != nil {
			t.Fatal(err)
		}
		out := overlay.IPv4(opts.DataOut[overlay.EthernetLen:])
		if why := slowsOf(r.tables, dn0).since(before); why != "passed" {
			t.Fatalf("slow for %q", why)
		}
		if got := out.TOS(); got != 0x40|want || out.Checksum() != checksumOf(out[:20]) {
			t.Errorf("TOS %#x becomes %#x, want %#x; header %x", 0x40|ecn, got, 0x40|want, out[:20])
		}
	}
}

// The probability follows the phantom queue of the link: it rises while the link is used for
// more than 95 % and falls after. A port whose speed is not known needs its queue.
func TestFastPathMarksByAPhantomQueue(t *testing.T) {
	r := newFastLeafSample(t)
	v := r.w.view
	e := &v.layout.ports[up0].Egress
	e.Kmin, e.Kmax, e.Pmax, e.QueueBytes = 10_000, 100_000, 1, 1<<20
	if why := v.fastEgress(r.states, up0); !strings.Contains(why, "speed is not known") {
		t.Errorf("without a speed the way out is slow for %q", why)
	}
	e.LinkRate = 1e9
	if why := v.fastEgress(r.states, up0); why != "" {
		t.Errorf("the way out is slow for %q", why)
	}
	access := &v.layout.ports[acc0].Egress
	access.Kmax, access.LinkRate = 1000, 1e9
	if why := v.fastEgress(r.states, acc0); !strings.Contains(why, "hosts' frames") {
		t.Errorf("the way to hosts is slow for %q", why)
	}
	m, at := &r.fast.meters[up0], r.now
	at += mono.Time(time.Millisecond)
	r.fast.mark(v, up0, m, 0, at)
	for range 20 {
		at += mono.Time(time.Millisecond)
		if !r.fast.mark(v, up0, m, 2*125_000, at) { // twice the rate
			t.Fatal("nothing waits on a link that gets twice its rate")
		}
	}
	marked := 0
	for range 40 { // by both uplinks
		if r.outerECN(2) == 3 {
			marked++
		}
	}
	if marked == 0 || marked == 40 {
		t.Errorf("%d of 40 flows are marked, of which those of one uplink should be", marked)
	}
	e.LinkRate = 0 // as when the kernel no longer knows the speed
	if r.fast.mark(v, up0, m, 0, at+1) || m.marks || r.outerECN(2) == 3 {
		t.Error("a port whose speed is not known any more goes on marking")
	}
	e.LinkRate = 1e9
	at += mono.Time(time.Second)
	if r.fast.mark(v, up0, m, 0, at) || m.marks {
		t.Error("the queue of an idle link is not empty")
	}
}
