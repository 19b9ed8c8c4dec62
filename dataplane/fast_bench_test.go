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
			info, err := r.progs[dn0].Info()
			if err != nil {
				b.Fatal(err)
			}
			if n, ok := info.VerifiedInstructions(); ok {
				b.ReportMetric(float64(n), "verified-instructions")
			}
		})
	}
}

// restoring returns a program that makes a frame what it was before prog forwarded it, and
// goes on with prog: a test run repeats with what the run before has left.
func restoring(b *testing.B, prog *ebpf.Program, frame []byte) *ebpf.Program {
	b.Helper()
	next, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { next.Close() })
	if err := next.Put(uint32(0), prog); err != nil {
		b.Fatal(err)
	}
	const ttl, checksum = overlay.EthernetLen + 8, overlay.EthernetLen + 10
	word := func(at int) int64 { return int64(int32(binary.NativeEndian.Uint32(frame[at:]))) }
	half := func(at int) int64 { return int64(binary.NativeEndian.Uint16(frame[at:])) }
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.XDP, AttachType: ebpf.AttachXDP, License: "GPL",
		Instructions: asm.Instructions{
			asm.Mov.Reg(asm.R6, asm.R1),
			asm.LoadMem(asm.R2, asm.R6, 0, asm.Word), // data
			asm.LoadMem(asm.R3, asm.R6, 4, asm.Word), // data_end
			asm.Mov.Reg(asm.R4, asm.R2),
			asm.Add.Imm(asm.R4, checksum+2),
			asm.JGT.Reg(asm.R4, asm.R3, "out"),
			asm.StoreImm(asm.R2, 0, word(0), asm.Word),
			asm.StoreImm(asm.R2, 4, half(4), asm.Half),
			asm.StoreImm(asm.R2, ttl, int64(frame[ttl]), asm.Byte),
			asm.StoreImm(asm.R2, checksum, half(checksum), asm.Half),
			asm.Mov.Reg(asm.R1, asm.R6),
			asm.LoadMapPtr(asm.R2, next.FD()),
			asm.Mov.Imm(asm.R3, 0),
			asm.FnTailCall.Call(),
			asm.Mov.Imm(asm.R0, 0).WithSymbol("out"),
			asm.Return(),
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { p.Close() })
	return p
}
