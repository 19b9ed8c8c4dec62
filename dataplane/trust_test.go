package dataplane

import (
	"encoding/binary"
	"testing"

	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/overlay"
)

// TestZeroMACStaysInItsVNI: the address that was found last, in another VNI, is not
// where a frame to the zero address goes after an address has moved. That frame's key
// is 0 in the first VNI.
func TestZeroMACStaysInItsVNI(t *testing.T) {
	r := newRig(t, leafConfig(), leafTables())
	r.send(acc1, udp4(bcast, hostC, 30, 1, 10)) // VNI 200
	r.send(acc1, udp4(bcast, hostB, 0, 1, 10))  // VNI 100
	out := r.send(acc0,
		udp4(hostC, hostA, 20, 1, 10),           // found: acc1, VLAN 30
		udp4(bcast, hostB, 0, 1, 10),            // moves from acc1
		udp4(overlay.MAC{}, hostA, 0, 0x77, 10)) // VNI 100, index 0
	for port, frames := range out {
		for _, b := range frames {
			if overlay.Ethernet(b).DstKey(0) == 0 {
				t.Errorf("a frame to the zero address left by port %d", port)
			}
		}
	}
	if n := r.drops()[drop.DestinationZero]; n != 1 {
		t.Errorf("%d frames dropped as DestinationZero", n)
	}
	r.send(up0, wrap(vtep2, own(), 100, udp4(overlay.MAC{}, hostB, 0, 1, 10), nil))
	if n := r.drops()[drop.DestinationZero]; n != 2 {
		t.Errorf("%d frames dropped as DestinationZero", n)
	}
}

// TestDeliveryChecksMembership: whatever the FDB says, a frame leaves only by a port
// and VLAN of its own VNI.
func TestDeliveryChecksMembership(t *testing.T) {
	for _, wrong := range []overlay.Dest{
		overlay.DestLocal(uint16(acc2), 0),  // VNI 300
		overlay.DestLocal(uint16(acc1), 30), // VNI 200
		overlay.DestLocal(uint16(acc1), 31), // none
	} {
		r := newRig(t, leafConfig(), leafTables())
		r.w.leaf.fdb.SetStatic(0, hostC, wrong)
		if out := r.send(acc0, udp4(hostC, hostA, 0, 1, 10)); len(out[wrong.Port()]) != 0 {
			t.Errorf("a host's frame of VNI 100 was delivered to %+v", wrong)
		}
		if n := r.drops()[drop.NotMember]; n != 1 {
			t.Errorf("%d frames dropped as NotMember", n)
		}
		if out := r.send(up0, wrap(vtep2, own(), 100, udp4(hostC, hostB, 0, 1, 10), nil)); len(out[wrong.Port()]) != 0 {
			t.Errorf("the fabric's frame of VNI 100 was delivered to %+v", wrong)
		}
		if n := r.drops()[drop.NotMember]; n != 2 {
			t.Errorf("%d frames dropped as NotMember", n)
		}
	}
}

// TestUnfinishedChecksum: what a host with checksum offload sends comes out finished,
// by the fabric and by the leaf's other ports, and is counted.
func TestUnfinishedChecksum(t *testing.T) {
	r := newRig(t, leafConfig(), leafTables())
	b := udp4(hostC, hostA, 20, 7, 100) // udp4 sends no checksum
	const udp = 14 + 4 + 20
	binary.BigEndian.PutUint16(b[udp+4:], 108)
	binary.BigEndian.PutUint16(b[udp+6:], pseudo(b[18:38], 108))
	whole := append(binary.BigEndian.AppendUint16(nil, pseudo(b[18:38], 108)), b[udp:]...)
	copy(whole[2+6:], []byte{0, 0})
	want := ^ones(whole)
	out := r.send(acc0, b)
	for port, inner := range map[PortID]int{acc1: udp, up0: 50 + udp - 4, up1: 50 + udp - 4} {
		for _, got := range out[port] {
			if c := binary.BigEndian.Uint16(got[inner+6:]); c != want {
				t.Errorf("port %d: checksum %#x, want %#x", port, c, want)
			}
		}
	}
	if len(out[acc1]) != 1 || len(out[up0])+len(out[up1]) != 1 {
		t.Errorf("%d frames to the host, %d and %d to the fabric", len(out[acc1]), len(out[up0]), len(out[up1]))
	}
	if n := r.w.ports[acc0].snapshot(r.now).Finished; n != 1 {
		t.Errorf("%d checksums were finished", n)
	}
}

// pseudo is the folded sum of the pseudo-header of a UDP datagram with that IPv4
// header and length.
func pseudo(ip []byte, n uint16) uint16 {
	return ones(append(append([]byte(nil), ip[12:20]...), 0, 17, byte(n>>8), byte(n)))
}

// ones adds up words with end-around carry.
func ones(b []byte) uint16 {
	sum := 0
	for i := 0; i+1 < len(b); i += 2 {
		sum += int(b[i])<<8 | int(b[i+1])
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}

// TestLinkLocalIsNotForwarded: neither from hosts, tagged or not, nor out of tunnels.
func TestLinkLocalIsNotForwarded(t *testing.T) {
	r := newRig(t, leafConfig(), leafTables())
	for last := range byte(0x12) {
		dst := overlay.MAC{1, 0x80, 0xc2, 0, 0, last}
		want := 0
		if last > 0xf {
			want = 1
		}
		for _, out := range [][][][]byte{
			r.send(acc0, udp4(dst, hostA, 0, 1, 10)),
			r.send(acc0, udp4(dst, hostA, 20, 1, 10)),
			r.send(up0, wrap(vtep2, own(), 100, udp4(dst, hostB, 0, 1, 10), nil)),
		} {
			if n := len(out[acc1]); n != want {
				t.Errorf("%d frames to %v were delivered", n, dst)
			}
		}
	}
	if n := r.drops()[drop.LinkLocal]; n != 3*16 {
		t.Errorf("%d frames dropped as LinkLocal", n)
	}
}
