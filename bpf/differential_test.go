package bpf

import (
	"bytes"
	"encoding/binary"
	"flag"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/testenv"
	"github.com/loomfabric/loom/overlay"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the randomised tests; 0: a new one, which is logged")

func generator(t *testing.T) *rand.Rand {
	s := *seedFlag
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("replay with -seed %d", s)
	return rand.New(rand.NewPCG(s, s))
}

// describes returns the bytes that an uplink's metadata must describe, and
// where they start: by RFC 7348 and DESIGN's fabric header, written without
// regard to how loom.c or package overlay do it. Zero if there are none.
func describes(frame []byte) (inner []byte, start int) {
	l4 := l4Of(frame)
	start = l4 + 16
	if len(frame) < start {
		return nil, 0
	}
	if last := frame[l4+11]; last&1 != 0 && last&4 != 0 {
		start += 4
	}
	end := l4 + int(binary.BigEndian.Uint16(frame[l4+4:]))
	if end > len(frame) || end < start+14 {
		return nil, 0
	}
	return frame[start:end], start
}

// l4Of returns where the UDP header of an outer frame is.
func l4Of(frame []byte) int {
	if binary.BigEndian.Uint16(frame[12:]) == 0x86dd {
		return 54
	}
	return 14 + int(frame[14]&15)*4
}

// checkAgainstGo compares what the three programs make of a frame with what
// package overlay makes of it; that of uplinks for VTEPs of both families.
type checkAgainstGo struct{ access, uplink, uplink6, spine *runner }

func newCheckAgainstGo(t testing.TB) *checkAgainstGo {
	return &checkAgainstGo{newRunner(t, config(Access)), newRunner(t, config(Uplink)), newRunner(t, config6()), newRunner(t, config(Spine))}
}

func (c *checkAgainstGo) frame(t testing.TB, frame []byte) {
	t.Helper()
	c.access.t, c.uplink.t, c.uplink6.t, c.spine.t = t, t, t, t
	var want overlay.Meta
	overlay.Dissect(frame, seed, &want)

	action, m, meta := c.access.run(frame)
	linkLocal := bytes.HasPrefix(frame, []byte{1, 0x80, 0xc2, 0, 0}) && frame[5] < 0x10
	switch {
	case linkLocal && action == xdpPass: // within the limit
		switch etherType := overlay.Ethernet(frame).EtherType(); {
		case meta:
			t.Errorf("access: metadata for a link-local frame %x", frame)
		case etherType < 0x0600 || slices.Contains([]uint16{0x8808, 0x8809, 0x888e, 0x88cc, 0x88f7}, etherType):
		default:
			t.Errorf("access: the kernel gets a link-local frame %x", frame)
		}
	case action != xdpRedirect || !meta || m != want:
		t.Errorf("access: action %d, metadata %v\n got %+v\nwant %+v\nframe %x", action, meta, m, want, frame)
	}

	action, m, meta = c.spine.run(frame)
	neighbour := overlay.Ethernet(frame).EtherType() == overlay.EtherTypeLocal
	if neighbour && (action != xdpRedirect || meta) {
		t.Errorf("spine: action %d, metadata %v for a neighbour's message %x", action, meta, frame)
	}
	if !neighbour && (action == xdpRedirect) != meta || (meta && m != want) || (action != xdpRedirect && action != xdpPass) {
		t.Errorf("spine: action %d, metadata %v\n got %+v\nwant %+v\nframe %x", action, meta, m, want, frame)
	}

	c.ofUplink(t, c.uplink, frame)
	c.ofUplink(t, c.uplink6, frame)
}

func (c *checkAgainstGo) ofUplink(t testing.TB, r *runner, frame []byte) {
	t.Helper()
	vtep := r.cfg.VTEP
	neighbour := overlay.Ethernet(frame).EtherType() == overlay.EtherTypeLocal
	action, m, meta := r.run(frame)
	if (meta && action != xdpRedirect) || (action != xdpRedirect && action != xdpPass) {
		t.Errorf("uplink: action %d, metadata %v\nframe %x", action, meta, frame)
	}
	var want overlay.Meta
	if neighbour && (action != xdpRedirect || meta) {
		t.Errorf("uplink: action %d, metadata %v for a neighbour's message %x", action, meta, frame)
	}
	if behind := behindExtension(frame, vtep); !neighbour && behind && (action != xdpRedirect || meta) {
		t.Errorf("uplink: action %d, metadata %v for VXLAN behind an extension header %x", action, meta, frame)
	} else if !neighbour && !behind && action == xdpRedirect {
		inner, start := describes(frame)
		if inner != nil {
			overlay.Dissect(inner, seed, &want)
			want.Inner = uint8(start)
		}
		if meta != (inner != nil) || m != want {
			t.Errorf("uplink: metadata %v\n got %+v\nwant %+v\nframe %x", meta, m, want, frame)
		}
	}
	// What decapsulation accepts, and is for us, must have come to user space
	// with metadata that agrees on where the inner frame starts.
	var d overlay.Decapped
	if overlay.Decap(frame, vxlanPort, &d) == drop.None && d.Dst == overlay.AddrOf(vtep) {
		if !meta || int(m.Inner) != d.Inner {
			t.Errorf("uplink: metadata %v, inner frame at %d; Decap finds it at %d\nframe %x", meta, m.Inner, d.Inner, frame)
		}
	}
}

// behindExtension reports whether a frame is to the VTEP, and an extension header or that
// of a first fragment stands before a UDP header to the VXLAN port.
func behindExtension(frame []byte, vtep netip.Addr) bool {
	if len(frame) < 62 || !vtep.Is6() || binary.BigEndian.Uint16(frame[12:]) != 0x86dd || frame[14]>>4 != 6 || netip.AddrFrom16([16]byte(frame[38:54])) != vtep {
		return false
	}
	l4 := 62
	switch frame[20] {
	case 0, 43, 60:
		l4 += 8 * int(frame[55])
	case 44:
		if binary.BigEndian.Uint16(frame[56:])>>3 != 0 {
			return false
		}
	default:
		return false
	}
	return frame[54] == 17 && len(frame) >= l4+8 && binary.BigEndian.Uint16(frame[l4+2:]) == vxlanPort
}

// corpus returns every frame of the fixtures, bare and encapsulated.
func corpus() [][]byte {
	var all [][]byte
	for _, c := range tenantFrames {
		all = append(all, c.frame, encap(c.frame), outer(ownVTEP, 0, fabricShim, shim, c.frame),
			outer(ownVTEP, 10, [3]byte{0, 0, 1}, nil, c.frame), outer(otherVTEP, 0, [3]byte{}, nil, c.frame),
			outer6(ownVTEP6, [3]byte{}, nil, c.frame), outer6(ownVTEP6, fabricShim, shim, c.frame), outer6(otherVTEP6, [3]byte{}, nil, c.frame))
	}
	for _, kind := range []byte{0, 43, 44, 51, 60} {
		all = append(all, extended(kind, 0), extended(kind, 2))
	}
	for _, c := range notVXLAN {
		all = append(all, c.frame)
	}
	return append(all, eth(overlay.EtherTypeLocal, make([]byte, 46)))
}

// Every frame of the fixtures, cut at every length that a driver can deliver.
func TestTruncated(t *testing.T) {
	c := newCheckAgainstGo(t)
	for _, frame := range corpus() {
		for n := 14; n <= len(frame); n++ {
			c.frame(t, frame[:n])
		}
		if t.Failed() {
			return
		}
	}
}

// The inner frame cut at every length: the outer headers are right, so that the
// limit is the UDP length and not the end of the buffer.
func TestTruncatedInside(t *testing.T) {
	c := newCheckAgainstGo(t)
	padding := make([]byte, 64)
	for _, tenant := range tenantFrames {
		for n := 0; n <= len(tenant.frame); n++ {
			c.frame(t, encap(tenant.frame[:n]))
			c.frame(t, join(encap(tenant.frame[:n]), tenant.frame[n:], padding))
		}
		if t.Failed() {
			return
		}
	}
}

// 20 000 frames that look like traffic and have been damaged.
func TestRandomFramesAgreeWithGo(t *testing.T) {
	r := generator(t)
	c := newCheckAgainstGo(t)
	frames := corpus()
	for range 20_000 {
		frame := mutate(r, slices.Clone(frames[r.IntN(len(frames))]))
		c.frame(t, frame)
		if t.Failed() {
			return
		}
	}
}

// mutate damages a frame where parsers look: in its headers, its lengths and
// its end. Some frames are left as they are, some become noise.
func mutate(r *rand.Rand, frame []byte) []byte {
	interesting := []byte{0, 1, 4, 6, 8, 17, 20, 44, 0x45, 0x46, 0x4f, 0x60, 0x81, 0x86, 0x88, 0xa8, 0xdd, 0xb7, 0x12, 0xff}
	if r.IntN(50) == 0 {
		for i := range frame {
			frame[i] = byte(r.Uint32())
		}
	}
	for range r.IntN(6) {
		i := r.IntN(len(frame))
		switch r.IntN(4) {
		case 0:
			frame[i] = byte(r.Uint32())
		case 1:
			frame[i] = interesting[r.IntN(len(interesting))]
		case 2:
			frame[i] ^= 1 << r.IntN(8)
		case 3:
			frame[i] += byte(1 + 254*r.IntN(2)) // one more or one less
		}
	}
	switch r.IntN(6) {
	case 0:
		frame = frame[:14+r.IntN(len(frame)-13)]
	case 1:
		frame = append(frame, make([]byte, r.IntN(64))...)
	}
	return frame
}

// FuzzClassify hands any bytes to all three programs and to package overlay.
func FuzzClassify(f *testing.F) {
	for _, frame := range corpus() {
		f.Add(frame)
	}
	c := newCheckAgainstGo(f)
	f.Fuzz(func(t *testing.T, frame []byte) {
		if len(frame) < 14 || len(frame) > 1500 {
			return // no driver delivers less; a test run takes one page
		}
		c.frame(t, frame)
	})
}

var soak = flag.Uint64("soak", 2000, "executions of FuzzClassify without the fuzzer, for TestSoak")

// TestSoak holds the programs and package overlay against each other for frames that are
// changed at random, faster than the fuzzer does.
func TestSoak(t *testing.T) {
	rng := generator(t)
	c, frames, buf := newCheckAgainstGo(t), corpus(), make([]byte, 0, 4096)
	for n := uint64(0); n < *soak; {
		b := testenv.Mutate(rng, append(buf[:0], frames[rng.IntN(len(frames))]...), frames)
		if len(b) < 14 || len(b) > 1500 {
			continue
		}
		c.frame(t, b)
		n++
	}
}
