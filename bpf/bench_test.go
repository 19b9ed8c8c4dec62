package bpf

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/testenv"
	"github.com/loomfabric/loom/overlay"
)

// BenchmarkProgram reports what one run costs, as the kernel's timer has it.
// "nothing" is the cost of the harness, which is in the others too.
func BenchmarkProgram(b *testing.B) {
	v4 := eth(0x0800, ip4(6, 0, 0, join(tcp(1000, 80), make([]byte, 1400))))
	v6 := eth(0x86dd, ip6(6, join(tcp(1000, 80), make([]byte, 1400))))
	b.Run("nothing", func(b *testing.B) {
		repeat(b, passAll(b), v4)
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

// BenchmarkRule reports what one run of the programs for a leaf whose overlay is the
// kernel's costs with 131,072 addresses: for one pair of them, which stays in the caches,
// and for others each time. "nothing" is the cost of choosing these.
func BenchmarkRule(b *testing.B) {
	const half = 1 << 16
	r := newRuled(b, RuleSize{2 * half, 4096, 1024})
	r.vlans[0] = VLAN{Network: 8, Refresh: 10 * time.Minute}
	for i := range 1000 {
		r.tables.Networks[overlay.VNI(100+i)] = uint16(7 + i)
		r.tables.Ways[i] = true
		r.tables.Peers[netip.AddrFrom4([4]byte{192, 168, byte(i >> 8), byte(i)})] = true
	}
	r.tables.Ports[rulePort] = true
	r.publish(b)
	var keys []overlay.FDBKey
	var places []overlay.Dest
	for i := range uint32(half) {
		n := binary.LittleEndian.AppendUint32(nil, i)
		keys = append(keys, modelKey(7, join([]byte{2, 1}, n)), modelKey(7, join([]byte{2, 2}, n)))
		places = append(places, overlay.DestLocal(rulePort, 0), overlay.DestRemote(uint16(i%1000)))
	}
	if n, err := r.rule.SetAddresses(keys, places); n != 2*half || err != nil {
		b.Fatal(n, err)
	}
	b.Logf("%d KiB of tables", r.rule.Memory()>>10)
	host := join([]byte{2, 2, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0}, be(0x0800), ruleTCP)
	back := inVXLAN(rulePeer, 100, [3]byte{0, 0, 1}, nil, join(host[6:12], host[:6], host[12:]))
	unknown := with(host, 0, 2, 3)
	r.access.pass(host) // the kernel is shown it
	for _, c := range []struct {
		name    string
		r       *runner
		frame   []byte
		numbers []int16 // where the frame has numbers of addresses
		verdict string
	}{
		{"access/hot", r.access, host, nil, "redirect"},
		{"access/unknown", r.access, unknown, nil, "pass_destination"},
		{"access/cold", r.access, host, []int16{2}, "redirect"},
		{"uplink/hot", r.link, back, nil, "redirect"},
		{"uplink/cold", r.link, back, []int16{52}, "redirect"},
		{"uplink/cleared", r.link, with(back, 50, 2, 3), nil, "pass_destination"},
	} {
		b.Run(c.name, func(b *testing.B) {
			before := c.r.read()
			repeat(b, c.r.prog, c.frame, c.numbers...)
			for name, n := range c.r.read() {
				if n != before[name] && name != c.verdict {
					b.Errorf("%d frames counted as %s, all should be %s", n-before[name], name, c.verdict)
				}
			}
		})
	}
	b.Run("nothing/cold", func(b *testing.B) { repeat(b, passAll(b), host, 2) })
}

// passAll is a program that passes all frames.
func passAll(b *testing.B) *ebpf.Program {
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
	b.Cleanup(func() { _ = pass.Close() })
	return pass
}

// repeat runs the program b.N times on one frame. A test run does not reset the
// frame between repetitions and metadata would pile up until the headroom is
// full; so a small program takes it off and goes on to the one that is meant. It puts
// another number, of 16 bits, into the frame's bytes at each of the offsets before.
func repeat(b *testing.B, prog *ebpf.Program, frame []byte, numbers ...int16) {
	b.Helper()
	next, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		b.Fatal(err)
	}
	defer next.Close()
	if err := next.Put(uint32(0), prog); err != nil {
		b.Fatal(err)
	}
	var vary asm.Instructions
	for _, off := range numbers {
		vary = append(vary,
			asm.FnGetPrandomU32.Call(),
			asm.LoadMem(asm.R2, asm.R6, 0, asm.Word), // data
			asm.LoadMem(asm.R3, asm.R6, 4, asm.Word), // data_end
			asm.Mov.Reg(asm.R4, asm.R2),
			asm.Add.Imm(asm.R4, int32(off)+2),
			asm.JGT.Reg(asm.R4, asm.R3, "next"),
			asm.StoreMem(asm.R2, off, asm.R0, asm.Half),
		)
	}
	reset, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type:       ebpf.XDP,
		AttachType: ebpf.AttachXDP, // as loom.c has it: tail calls need the same
		License:    "Apache-2.0",
		Instructions: append(append(asm.Instructions{
			asm.Mov.Reg(asm.R6, asm.R1),
			asm.LoadMem(asm.R2, asm.R1, 0, asm.Word), // data
			asm.LoadMem(asm.R3, asm.R1, 8, asm.Word), // data_meta
			asm.Sub.Reg(asm.R2, asm.R3),
			asm.FnXdpAdjustMeta.Call(),
		}, vary...),
			asm.Mov.Reg(asm.R1, asm.R6).WithSymbol("next"),
			asm.LoadMapPtr(asm.R2, next.FD()),
			asm.Mov.Imm(asm.R3, 0),
			asm.FnTailCall.Call(),
			asm.Mov.Imm(asm.R0, 0),
			asm.Return(),
		),
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
