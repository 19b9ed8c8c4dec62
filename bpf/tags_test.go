package bpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/dataplane/xsk"
	"github.com/loomfabric/loom/internal/ethtool"
	"github.com/loomfabric/loom/internal/testenv"
	"github.com/loomfabric/loom/overlay"
)

// pushTags makes far0 put a tag on all that it sends: beside the frame, as with a
// kernel's VLAN interface and default offloads, or, without offload, into it.
func (w *wire) pushTags(tpid, tci uint16, offload bool) {
	w.t.Helper()
	push, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type:    ebpf.SchedCLS,
		License: "Apache-2.0",
		Instructions: asm.Instructions{
			asm.Mov.Imm(asm.R2, int32(binary.NativeEndian.Uint16(be(tpid)))),
			asm.Mov.Imm(asm.R3, int32(tci)),
			asm.FnSkbVlanPush.Call(),
			asm.Mov.Imm(asm.R0, 0), // TC_ACT_OK
			asm.Return(),
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	defer push.Close()
	far := w.far.Link(w.t, "far0").Attrs().Index
	w.far.Do(w.t, func() {
		setTXVLAN(w.t, "far0", offload)
		l, err := link.AttachTCX(link.TCXOptions{Interface: far, Program: push, Attach: ebpf.AttachTCXEgress})
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() { _ = l.Close() })
	})
}

// mustLoad is load for a program that is closed when the test ends.
func (w *wire) mustLoad(cfg Config) (p *Program) {
	w.t.Helper()
	w.near.Do(w.t, func() { p = mustLoad(w.t, cfg) })
	return p
}

// setTXVLAN turns VLAN offload on or off in the namespace of the calling thread.
func setTXVLAN(t testing.TB, name string, on bool) {
	t.Helper()
	s, err := ethtool.Open()
	if err == nil {
		err = errors.Join(s.Set(name, ethtool.TXVLAN, on), s.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// receiver is an AF_XDP socket on queue 0 of near0.
type receiver struct {
	t      testing.TB
	umem   *xsk.Umem
	socket *xsk.Socket
	addrs  []uint64
}

func (w *wire) receive(p *Program, mode Mode) *receiver {
	w.t.Helper()
	u, err := xsk.NewUmem(xsk.UmemConfig{Frames: 256, FrameSize: 2048})
	if err != nil {
		w.t.Fatal(err)
	}
	r := &receiver{t: w.t, umem: u}
	w.near.Do(w.t, func() {
		r.socket, err = xsk.Open(u, xsk.SocketConfig{
			Ifindex: w.index, Name: "near0", RX: 64, TX: 64, Fill: 64, Completion: 64, Generic: mode == Generic,
		})
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := errors.Join(r.socket.Close(), u.Close()); err != nil {
			w.t.Error(err)
		}
	})
	for i := range 64 {
		r.addrs = append(r.addrs, uint64(i*2048))
	}
	r.socket.Fill(r.addrs)
	if err := p.SetSocket(0, r.socket.FD()); err != nil {
		w.t.Fatal(err)
	}
	return r
}

// next returns the next frame and the metadata before it.
func (r *receiver) next() (frame []byte, m overlay.Meta) {
	r.t.Helper()
	var d [1]xsk.Desc
	eventually(r.t, "a frame", func() bool { return r.socket.Receive(d[:]) == 1 })
	b := r.umem.Area()[d[0].Addr-overlay.MetaLen:][:overlay.MetaLen+d[0].Len]
	if _, err := binary.Decode(b, binary.NativeEndian, &m); err != nil {
		r.t.Fatal(err)
	}
	frame = bytes.Clone(b[overlay.MetaLen:])
	r.socket.Fill([]uint64{d[0].Addr &^ 2047})
	return frame, m
}

// A host hands tags over beside its frames. User space gets the frames as they would be
// on a wire, with metadata that is right for them, whatever is in them.
func TestTagsOfHosts(t *testing.T) {
	for _, c := range []struct {
		name      string
		tpid, tci uint16
		offload   bool
	}{
		{"beside the frame", 0x8100, 20, true},
		{"beside the frame, with priority", 0x8100, 5<<13 | 4094, true},
		{"beside the frame, 802.1ad", 0x88a8, 7, true},
		{"beside the frame, priority alone", 0x8100, 3 << 13, true},
		{"in the frame", 0x8100, 20, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWire(t, testenv.VethOptions{})
			w.pushTags(c.tpid, c.tci, c.offload)
			cfg := config(Access)
			cfg.Device = w.index
			p := w.mustLoad(cfg)
			if !p.ReadsTags() {
				t.Fatal("the program does not read tags, although this kernel's veth tells of them")
			}
			if _, err := w.attach(p, Auto); err != nil {
				t.Fatal(err)
			}
			r, tx := w.receive(p, Native), packet(t, w.far, "far0")
			for _, f := range tenantFrames {
				if len(f.frame) < 14 || overlay.IsVLAN(overlay.Ethernet(f.frame).EtherType()) && len(f.frame) < 18 {
					continue // the kernel sends no such frame
				}
				if _, err := unix.Write(tx, f.frame); err != nil {
					t.Fatalf("%s: %v", f.name, err)
				}
				want := join(f.frame[:12], be(c.tpid), be(c.tci), f.frame[12:])
				var meta overlay.Meta
				overlay.Dissect(want, seed, &meta)
				if got, m := r.next(); !bytes.Equal(got, want) || m != meta {
					t.Errorf("%s:\n got %x\n     %+v\nwant %x\n     %+v", f.name, got, m, want, meta)
				}
			}
		})
	}
}

// Frames without tags come as they are by a program that reads tags, and those of the
// link go to the kernel; with a tag they do not.
func TestTagsOfNone(t *testing.T) {
	w := newWire(t, testenv.VethOptions{})
	cfg := config(Access)
	cfg.Device = w.index
	p := w.mustLoad(cfg)
	if _, err := w.attach(p, Auto); err != nil {
		t.Fatal(err)
	}
	r, tx := w.receive(p, Native), packet(t, w.far, "far0")
	frame := tenantFrames[0].frame
	lldp := with(eth(0x88cc, make([]byte, 46)), 0, 1, 0x80, 0xc2, 0, 0, 0x0e)
	for _, f := range [][]byte{lldp, frame} {
		if _, err := unix.Write(tx, f); err != nil {
			t.Fatal(err)
		}
	}
	if got, _ := r.next(); !bytes.Equal(got, frame) {
		t.Errorf("got %x\nwant %x", got, frame)
	}
	w.pushTags(0x8100, 20, true)
	if _, err := unix.Write(tx, lldp); err != nil {
		t.Fatal(err)
	}
	if got, _ := r.next(); !bytes.Equal(got, join(lldp[:12], be(0x8100), be(20), lldp[12:])) {
		t.Errorf("tagged LLDP: got %x", got)
	}
	n, err := p.Counters()
	if err != nil || n["pass_link_local"] != 1 || n["redirect"] != 2 {
		t.Errorf("counters %v, error %v; want one pass_link_local and two redirect", n, err)
	}
}

// Without word of the driver a tag beside the frame is lost: on uplinks, which need
// none, and in generic mode.
func TestVLANOffloadHidesTags(t *testing.T) {
	for _, mode := range []Mode{Native, Generic} {
		for offload, want := range map[string]string{"off": "pass_not_ours", "on": "pass_no_socket"} {
			t.Run(fmt.Sprintf("%v, offload %s", mode, offload), func(t *testing.T) {
				w := newWire(t, testenv.VethOptions{})
				w.pushTags(0x8100, 5, offload == "on")
				// An uplink shows whether it sees the tag: tagged VXLAN is not ours.
				p := mustLoad(t, config(Uplink))
				if _, err := w.attach(p, mode); err != nil {
					t.Fatal(err)
				}
				if _, err := unix.Write(packet(t, w.far, "far0"), vxlanFrame); err != nil {
					t.Fatal(err)
				}
				eventually(t, "one frame counted as "+want, func() bool {
					n, err := p.Counters()
					if err != nil {
						t.Fatal(err)
					}
					return n[want] == 1
				})
			})
		}
	}
}

// A veth tells XDP programs of tags, loopback does not.
func TestTellsTags(t *testing.T) {
	w := newWire(t, testenv.VethOptions{})
	w.near.Do(t, func() {
		lo := w.near.Link(t, "lo").Attrs().Index
		for index, want := range map[int]bool{w.index: true, lo: false} {
			if got, err := TellsTags(index); err != nil || got != want {
				t.Errorf("TellsTags(%d) = %v, %v; want %v", index, got, err, want)
			}
		}
		if _, err := TellsTags(1 << 20); err == nil {
			t.Error("TellsTags of an interface that does not exist succeeds")
		}
	})
}
