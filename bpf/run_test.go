package bpf

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/testenv"
	"github.com/loomfabric/loom/overlay"
)

// xdpRedirect is another of XDP's actions (linux/bpf.h).
const xdpRedirect = 4

// xdpMD is struct xdp_md (linux/bpf.h).
type xdpMD struct {
	Data, DataEnd, DataMeta, Ifindex, Queue, Egress uint32
}

// runner feeds frames to one program by BPF_PROG_TEST_RUN.
type runner struct {
	t testing.TB
	*Program
	meta []byte // that frames come with
	out  []byte

	numbered bool   // programs put a number in front of the metadata
	number   uint64 // the last one
}

func config(kind Kind) Config {
	c := Config{Kind: kind, VXLANPort: vxlanPort, Seed: seed, Queues: 1}
	switch kind {
	case Uplink:
		c.VTEP = ownVTEP
	case Spine:
		c.Routes = fixedRoutes()
	}
	return c
}

// config6 is config(Uplink) with a VTEP of IPv6.
func config6() Config {
	c := config(Uplink)
	c.VTEP = ownVTEP6
	return c
}

// fixedRoutes are what all tests share that do not change them; nil: the tests do not run
// as root.
var fixedRoutes = sync.OnceValue(func() *Routes {
	r, err := NewRoutes()
	if err != nil || r.Take(prefixes("10.0.0.0/24", "10.0.8.8/32", "2001:db8::/64", "2001:db8:8::8/128")) != nil {
		return nil
	}
	return r
})

// prefixes are those of routes that are ours.
func prefixes(of ...string) map[netip.Prefix]bool {
	ours := make(map[netip.Prefix]bool)
	for _, p := range of {
		ours[netip.MustParsePrefix(p)] = true
	}
	return ours
}

// newRunner loads the program of a kind of port as the data plane does. Queue 0
// has a socket: one that is bound to nothing, as the map asks for no more, and
// a test run ends with the program's verdict.
func newRunner(t testing.TB, cfg Config) *runner {
	t.Helper()
	testenv.NeedRoot(t)
	p, err := Load(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := p.SetSocket(0, socket(t)); err != nil {
		t.Fatal(err)
	}
	return &runner{t: t, Program: p, out: make([]byte, 4096)}
}

// socket returns an unbound AF_XDP socket.
func socket(t testing.TB) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("socket(AF_XDP): %v", err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

// run returns the program's action and the metadata that it left, if any. The
// frame itself must come out as it went in.
func (r *runner) run(frame []byte) (action uint32, m overlay.Meta, meta bool) {
	r.t.Helper()
	action, out, m, meta := r.pass(frame)
	if !bytes.Equal(out, frame) {
		r.t.Fatalf("frame\n%x came out as\n%x", frame, out)
	}
	return action, m, meta
}

// pass is run for programs that may change the frame: it returns what comes out, until
// the next call.
func (r *runner) pass(frame []byte) (action uint32, changed []byte, m overlay.Meta, meta bool) {
	r.t.Helper()
	in, out := xdpMD{Data: uint32(len(r.meta)), DataEnd: uint32(len(r.meta) + len(frame))}, xdpMD{}
	opts := ebpf.RunOptions{Data: append(r.meta[:len(r.meta):len(r.meta)], frame...), DataOut: r.out, Context: in, ContextOut: &out}
	action, err := r.prog.Run(&opts)
	if err != nil {
		r.t.Fatalf("test run of %d bytes %x: %v", len(frame), frame, err)
	}
	changed = opts.DataOut[out.Data:]
	switch out.Data {
	case 0:
		return action, changed, m, false
	case overlay.MetaLen + 8:
		if !r.numbered {
			break
		}
		r.number = binary.NativeEndian.Uint64(opts.DataOut)
		opts.DataOut = opts.DataOut[8:]
		fallthrough
	case overlay.MetaLen:
		if _, err := binary.Decode(opts.DataOut, binary.NativeEndian, &m); err != nil {
			r.t.Fatal(err)
		}
		return action, changed, m, true
	}
	r.t.Fatalf("metadata of %d bytes, want %d", out.Data, overlay.MetaLen)
	return
}

// verdict runs the frame and returns, besides, under which name it was counted:
// exactly one counter may have grown, by one.
func (r *runner) verdict(frame []byte) (name string, action uint32, m overlay.Meta, meta bool) {
	r.t.Helper()
	before := r.read()
	action, m, meta = r.run(frame)
	return r.counted(before), action, m, meta
}

// counted returns under which name a frame was counted since before.
func (r *runner) counted(before map[string]uint64) (name string) {
	r.t.Helper()
	after := r.read()
	for _, v := range verdictNames {
		switch after[v] - before[v] {
		case 0:
		case 1:
			if name != "" {
				r.t.Fatalf("counted as %s and %s", name, v)
			}
			name = v
		default:
			r.t.Fatalf("%s grew from %d to %d", v, before[v], after[v])
		}
	}
	if name == "" {
		r.t.Fatal("not counted")
	}
	return name
}

func (r *runner) read() map[string]uint64 {
	r.t.Helper()
	c, err := r.Counters()
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// expect runs the frame and checks action, counter and presence of metadata,
// which all follow from the verdict; it returns the metadata.
func (r *runner) expect(frame []byte, want string) overlay.Meta {
	r.t.Helper()
	name, action, m, meta := r.verdict(frame)
	wantAction := uint32(xdpPass)
	if want == "redirect" || want == "no_meta" || want == "neighbour" {
		wantAction = xdpRedirect
	}
	if name != want || action != wantAction || meta != (want == "redirect") {
		r.t.Errorf("verdict %s, action %d, metadata %v; want %s, action %d\nframe %x", name, action, meta, want, wantAction, frame)
	}
	return m
}
