package dataplane

import (
	"encoding/binary"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/loomfabric/loom/overlay"
)

// BenchmarkFastSpine reports what the program of a spine's port costs for a frame that it
// forwards, as the kernel's timer has it, without what drivers do.
func BenchmarkFastSpine(b *testing.B) {
	anywhere := spineConfig()
	anywhere.ReversePath = AnyPath
	for _, c := range []struct {
		name    string
		cfg     Config
		payload int
	}{{"short", spineConfig(), 64}, {"long", spineConfig(), 1400}, {"short, from anywhere", anywhere, 64}} {
		b.Run(c.name, func(b *testing.B) {
			r := newFastRig(b, c.cfg, spineTables(), 1)
			frame := wrap(own(), vtep3, 100, udp4(hostA, hostB, 0, 1, c.payload), &overlay.Fabric{Capable: true})
			again := restoring(b, r.progs[dn0], frame)
			before := r.moved(dn0)[2]
			_, each, err := again.Benchmark(frame, b.N, nil)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(each.Nanoseconds()), "ns/op")
			if n := r.moved(dn0)[2] - before; n != uint64(b.N) {
				b.Fatalf("%d of %d frames were forwarded", n, b.N)
			}
			reportVerified(b, r.progs[dn0])
		})
	}
}

// reportVerified reports how much of a program the verifier looked at, where the kernel says
// so.
func reportVerified(b *testing.B, prog *ebpf.Program) {
	b.Helper()
	info, err := prog.Info()
	if err != nil {
		b.Fatal(err)
	}
	if n, ok := info.VerifiedInstructions(); ok {
		b.ReportMetric(float64(n), "verified-instructions")
	}
}

// BenchmarkFastLeaf reports what the program of an uplink costs for a frame that it delivers,
// and for one that it hands to the socket, without what drivers do. That a frame is put back
// into its tunnel before the next run is a part of the time.
func BenchmarkFastLeaf(b *testing.B) {
	for _, c := range []struct {
		name    string
		vni     overlay.VNI
		payload int
		fields  *overlay.Fabric
		slow    bool
	}{
		{"plain", 100, 64, nil, false},
		{"fields", 100, 64, &overlay.Fabric{Capable: true, CE: 3, FBValid: true, FBTag: 1, FBMetric: 2}, false},
		{"fields, long", 100, 1400, &overlay.Fabric{Capable: true, CE: 3, FBValid: true, FBTag: 1, FBMetric: 2}, false},
		{"tag", 200, 64, nil, false},
		{"to the worker", 100, 64, nil, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := newFastLeafSample(b)
			if c.slow {
				r.tables.Off()
			}
			frame := wrap(vtep2, own(), c.vni, udp4(hostA, hostB, 0, 1, c.payload), c.fields)
			before := r.fast.stats().Ports[up0].Received.Frames
			_, each, err := rewrapping(b, r.progs[up0], frame, c.vni == 200).Benchmark(frame, b.N, nil)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(each.Nanoseconds()), "ns/op")
			if n := r.fast.stats().Ports[up0].Received.Frames - before; n != uint64(b.N) && !c.slow {
				b.Fatalf("%d of %d frames were delivered", n, b.N)
			}
			reportVerified(b, r.progs[up0])
		})
	}
}

// BenchmarkFastAccess reports what the program of an access port costs for a frame that it puts
// into a tunnel, and for one that it hands to the socket, without what drivers do. That a
// frame is taken out of its tunnel before the next run is a part of the time.
func BenchmarkFastAccess(b *testing.B) {
	for _, c := range []struct {
		name, scheme string
		payload      int
		capable      bool
		flows        int
		slow         bool
	}{
		{"ecmp, plain", "", 64, false, 1, false},
		{"ecmp", "", 64, true, 1, false},
		{"conga", "conga", 64, true, 1, false},
		{"conga, long", "conga", 1400, true, 1, false},
		{"to the worker", "", 64, true, 1, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			cfg := leafConfig()
			cfg.Scheme = c.scheme
			r := newFastLeafRig(b, cfg, leafTables())
			r.knows(0, hostA, overlay.DestLocal(uint16(acc0), 0))
			r.knows(0, hostB, overlay.DestRemote(0))
			if c.capable {
				r.prove(0)
				r.w.shared.leaf.From.Record(0, 3, 2, r.now)
			}
			r.pass(0)
			r.speak()
			if c.slow {
				r.tables.Off()
			}
			frame := udp4(hostB, hostA, 0, 1, c.payload)
			before := r.fast.stats().Ports[acc0].Received.Frames
			_, each, err := unwrapping(b, r.progs[acc0], frame).Benchmark(frame, b.N, nil)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(each.Nanoseconds()), "ns/op")
			if n := r.fast.stats().Ports[acc0].Received.Frames - before; n != uint64(b.N) && !c.slow {
				b.Fatalf("%d of %d frames were forwarded", n, b.N)
			}
			reportVerified(b, r.progs[acc0])
		})
	}
}

// unwrapping returns a program that takes a frame out of its tunnel, if prog put it in, and
// goes on with prog.
func unwrapping(b *testing.B, prog *ebpf.Program, frame []byte) *ebpf.Program {
	b.Helper()
	return before(b, prog, asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R2, asm.R6, 0, asm.Word), // data
		asm.LoadMem(asm.R3, asm.R6, 4, asm.Word), // data_end
		asm.Sub.Reg(asm.R3, asm.R2),
		asm.JEq.Imm(asm.R3, int32(len(frame)), "next"),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Mov.Imm(asm.R2, overlay.Overhead),
		asm.FnXdpAdjustHead.Call(),
	})
}

// before returns a program of instructions, with the context in R6, and goes on with prog at
// the label "next" and behind them.
func before(b *testing.B, prog *ebpf.Program, ins asm.Instructions) *ebpf.Program {
	b.Helper()
	next, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { next.Close() })
	if err := next.Put(uint32(0), prog); err != nil {
		b.Fatal(err)
	}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, AttachType: ebpf.AttachXDP, License: "GPL", Instructions: append(ins,
		asm.Mov.Reg(asm.R1, asm.R6).WithSymbol("next"),
		asm.LoadMapPtr(asm.R2, next.FD()),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnTailCall.Call(),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
	)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { p.Close() })
	return p
}

// rewrapping returns a program that puts a frame back into its tunnel, if prog took it out,
// and goes on with prog.
func rewrapping(b *testing.B, prog *ebpf.Program, frame []byte, tagged bool) *ebpf.Program {
	b.Helper()
	inner := len(frame) - overlay.Overhead
	if tagged {
		inner += overlay.VLANLen
	}
	delta := len(frame) - inner
	ins := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R2, asm.R6, 0, asm.Word), // data
		asm.LoadMem(asm.R3, asm.R6, 4, asm.Word), // data_end
		asm.Sub.Reg(asm.R3, asm.R2),
		asm.JNE.Imm(asm.R3, int32(inner), "next"),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Mov.Imm(asm.R2, int32(-delta)),
		asm.FnXdpAdjustHead.Call(),
		asm.LoadMem(asm.R2, asm.R6, 0, asm.Word),
		asm.LoadMem(asm.R3, asm.R6, 4, asm.Word),
		asm.Mov.Reg(asm.R4, asm.R2),
		asm.Add.Imm(asm.R4, overlay.Overhead+14),
		asm.JGT.Reg(asm.R4, asm.R3, "next"),
	}
	for at := 0; at < overlay.Overhead+14; at += 4 { // the frame's own addresses, too
		ins = append(ins, asm.StoreImm(asm.R2, int16(at), int64(int32(binary.NativeEndian.Uint32(frame[at:]))), asm.Word))
	}
	return before(b, prog, ins)
}

// restoring returns a program that makes a frame what it was before prog forwarded it, and
// goes on with prog: a test run repeats with what the run before has left.
func restoring(b *testing.B, prog *ebpf.Program, frame []byte) *ebpf.Program {
	b.Helper()
	const ttl, checksum = overlay.EthernetLen + 8, overlay.EthernetLen + 10
	word := func(at int) int64 { return int64(int32(binary.NativeEndian.Uint32(frame[at:]))) }
	half := func(at int) int64 { return int64(binary.NativeEndian.Uint16(frame[at:])) }
	return before(b, prog, asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R2, asm.R6, 0, asm.Word), // data
		asm.LoadMem(asm.R3, asm.R6, 4, asm.Word), // data_end
		asm.Mov.Reg(asm.R4, asm.R2),
		asm.Add.Imm(asm.R4, checksum+2),
		asm.JGT.Reg(asm.R4, asm.R3, "next"),
		asm.StoreImm(asm.R2, 0, word(0), asm.Word),
		asm.StoreImm(asm.R2, 4, half(4), asm.Half),
		asm.StoreImm(asm.R2, ttl, int64(frame[ttl]), asm.Byte),
		asm.StoreImm(asm.R2, checksum, half(checksum), asm.Half),
	})
}
