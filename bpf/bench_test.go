package bpf

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/testenv"
)

// BenchmarkProgram reports what one run costs, as the kernel's timer has it.
// "nothing" is the cost of the harness, which is in the others too.
func BenchmarkProgram(b *testing.B) {
	v4 := eth(0x0800, ip4(6, 0, 0, join(tcp(1000, 80), make([]byte, 1400))))
	v6 := eth(0x86dd, ip6(6, join(tcp(1000, 80), make([]byte, 1400))))
	b.Run("nothing", func(b *testing.B) {
		testenv.NeedRoot(b)
		pass, err := ebpf.NewProgram(&ebpf.ProgramSpec{
			Type:         ebpf.XDP,
			AttachType:   ebpf.AttachXDP,
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, xdpPass), asm.Return()},
			License:      "Apache-2.0",
		})
		if err != nil {
			b.Fatal(err)
		}
		defer pass.Close()
		repeat(b, pass, v4)
	})
	for _, c := range []struct {
		name    string
		kind    Kind
		frame   []byte
		verdict string
	}{
		{"access/IPv4", Access, v4, "redirect"},
		{"access/IPv6", Access, v6, "redirect"},
		{"access/VLAN", Access, join(v4[:12], be(0x8100), tag(5, 0x0800), v4[14:]), "redirect"},
		{"uplink/IPv4", Uplink, encap(v4), "redirect"},
		{"uplink/IPv6", Uplink, encap(v6), "redirect"},
		{"uplink/shim", Uplink, outer(ownVTEP, 0, fabricShim, shim, v4), "redirect"},
		{"uplink/BGP", Uplink, notVXLAN[0].frame, "pass_not_ours"},
		{"spine/IPv4", Spine, encap(v4), "redirect"},
		{"spine/BGP", Spine, notVXLAN[0].frame, "pass_not_ours"},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := newRunner(b, config(c.kind))
			repeat(b, r.prog, c.frame)
			for name, n := range r.read() {
				if (n != 0) != (name == c.verdict) {
					b.Errorf("%d frames counted as %s, all should be %s", n, name, c.verdict)
				}
			}
		})
	}
}

// BenchmarkTags reports what the program of an access port costs for frames that come
// by a veth, as the kernel counts its time: test runs take no program that is bound to
// a device. Counting itself costs some 20 ns, in all of them.
func BenchmarkTags(b *testing.B) {
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		b.Fatal(err)
	}
	defer stats.Close()
	v4 := eth(0x0800, ip4(6, 0, 0, join(tcp(1000, 80), make([]byte, 1400))))
	for _, c := range []struct {
		name         string
		reads        bool
		tag, offload bool
	}{
		{"for any device/untagged", false, false, false},
		{"for any device/tagged", false, true, false},
		{"for one device/untagged", true, false, false},
		{"for one device/tagged", true, true, false},
		{"for one device/tag beside the frame", true, true, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			w := newWire(b, testenv.VethOptions{})
			cfg := config(Access)
			if c.reads {
				cfg.Device = w.index
			}
			if c.tag {
				w.pushTags(0x8100, 20, c.offload)
			}
			p := w.mustLoad(cfg)
			if _, err := w.attach(p, Native); err != nil {
				b.Fatal(err)
			}
			w.receive(p, Native)
			tx := packet(b, w.far, "far0")
			for b.Loop() {
				if _, err := unix.Write(tx, v4); err != nil && err != unix.ENOBUFS {
					b.Fatal(err)
				}
			}
			s, err := p.prog.Stats()
			if err != nil || s.RunCount == 0 {
				b.Fatalf("%v of %d runs, error %v", s.Runtime, s.RunCount, err)
			}
			b.ReportMetric(float64(s.Runtime.Nanoseconds())/float64(s.RunCount), "ns/run")
		})
	}
}

// repeat runs the program b.N times on one frame. A test run does not reset the
// frame between repetitions and metadata would pile up until the headroom is
// full; so a small program takes it off and goes on to the one that is meant.
func repeat(b *testing.B, prog *ebpf.Program, frame []byte) {
	b.Helper()
	next, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		b.Fatal(err)
	}
	defer next.Close()
	if err := next.Put(uint32(0), prog); err != nil {
		b.Fatal(err)
	}
	reset, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type:       ebpf.XDP,
		AttachType: ebpf.AttachXDP, // as loom.c has it: tail calls need the same
		License:    "Apache-2.0",
		Instructions: asm.Instructions{
			asm.Mov.Reg(asm.R6, asm.R1),
			asm.LoadMem(asm.R2, asm.R1, 0, asm.Word), // data
			asm.LoadMem(asm.R3, asm.R1, 8, asm.Word), // data_meta
			asm.Sub.Reg(asm.R2, asm.R3),
			asm.FnXdpAdjustMeta.Call(),
			asm.Mov.Reg(asm.R1, asm.R6),
			asm.LoadMapPtr(asm.R2, next.FD()),
			asm.Mov.Imm(asm.R3, 0),
			asm.FnTailCall.Call(),
			asm.Mov.Imm(asm.R0, 0),
			asm.Return(),
		},
	})
	if err != nil {
		b.Fatalf("%+v", err)
	}
	defer reset.Close()
	action, each, err := reset.Benchmark(frame, b.N, nil)
	if err != nil {
		b.Fatal(err)
	}
	if action == 0 {
		b.Fatal("the tail call failed")
	}
	b.ReportMetric(float64(each.Nanoseconds()), "ns/op")
}
