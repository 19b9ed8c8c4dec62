package peers

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// Verdicts of XDP programs, and the one of TCX that drops.
const (
	xdpDrop = 1
	xdpPass = 2
	tcxDrop = 2
)

// receiver is what takes frames at the end of the bed, counts those that are right, and drops
// all.
type receiver uint8

const (
	// noBuffers is a native XDP program. What comes from XDP it gets as it is; socket buffers
	// the kernel copies first.
	noBuffers receiver = iota
	// buffers is a TCX program: for what comes from XDP the kernel makes socket buffers first.
	buffers
)

// Slots of a sink's counters.
const (
	sinkGood  = iota // as wanted
	sinkOther        // anything else
	sinkSlots
)

// maxSamples is how many times under way a sink can note.
const maxSamples = 1 << 20

// sink is the receiver's program, and what it has counted.
type sink struct {
	counters *ebpf.Map
	times    *ebpf.Map // how many were noted; nil: none are
	samples  *ebpf.Map
	link     link.Link
}

// newSink attaches a program to the end of the bed that counts frames that are as wanted. With timed
// it notes how long each was under way. The caller closes it.
func (d *bed) newSink(t testing.TB, r receiver, w *wanted, timed bool) *sink {
	t.Helper()
	s := &sink{counters: newMap(t, &ebpf.MapSpec{Name: "peers_sink", Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: sinkSlots})}
	if timed {
		s.times = newMap(t, &ebpf.MapSpec{Name: "peers_times", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
		s.samples = newMap(t, &ebpf.MapSpec{Name: "peers_samples", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: maxSamples})
	}
	spec := &ebpf.ProgramSpec{Name: "peers_sink", Type: ebpf.XDP, Instructions: s.code(r, w), License: "Apache-2.0"}
	if r == buffers {
		spec.Type = ebpf.SchedCLS
	}
	prog, err := ebpf.NewProgram(spec)
	if err != nil {
		t.Fatalf("load the sink: %v", err)
	}
	defer prog.Close() // the link keeps it
	d.sink.Do(t, func() {
		if r == buffers {
			s.link, err = link.AttachTCX(link.TCXOptions{Interface: d.end.index, Program: prog, Attach: ebpf.AttachTCXIngress})
		} else {
			s.link, err = link.AttachXDP(link.XDPOptions{Program: prog, Interface: d.end.index, Flags: link.XDPDriverMode})
		}
		if err != nil {
			t.Fatalf("attach the sink (TCX needs Linux 6.6): %v", err)
		}
	})
	return s
}

func newMap(t testing.TB, spec *ebpf.MapSpec) *ebpf.Map {
	t.Helper()
	m, err := ebpf.NewMap(spec)
	if err != nil {
		t.Fatalf("map %s: %v", spec.Name, err)
	}
	return m
}

func (s *sink) close(t testing.TB) {
	t.Helper()
	if err := s.link.Close(); err != nil {
		t.Errorf("take the sink away: %v", err)
	}
	for _, m := range []*ebpf.Map{s.counters, s.times, s.samples} {
		if m != nil {
			m.Close()
		}
	}
}

// code returns the sink's program.
func (s *sink) code(r receiver, w *wanted) asm.Instructions {
	data, end, verdict := int16(0), int16(4), int32(xdpDrop) // xdp_md
	if r == buffers {
		data, end, verdict = 76, 80, tcxDrop // __sk_buff
	}
	need := int16(w.stamp + 8)
	insns := asm.Instructions{
		asm.StoreImm(asm.RFP, -4, sinkOther, asm.Word),
		asm.LoadMem(asm.R6, asm.R1, data, asm.Word),
		asm.LoadMem(asm.R7, asm.R1, end, asm.Word),
		asm.Mov.Reg(asm.R2, asm.R6),
		asm.Add.Imm(asm.R2, int32(need)),
		asm.JGT.Reg(asm.R2, asm.R7, "count"),
		asm.Sub.Reg(asm.R7, asm.R6),
		asm.JNE.Imm(asm.R7, int32(len(w.frame)), "count"),
	}
	for _, c := range w.words {
		b, size := w.frame[c.offset:], asm.DWord
		var value uint64
		switch c.size {
		case 2:
			value, size = uint64(binary.NativeEndian.Uint16(b)), asm.Half
		case 4:
			value, size = uint64(binary.NativeEndian.Uint32(b)), asm.Word
		default:
			value = binary.NativeEndian.Uint64(b)
		}
		insns = append(insns,
			asm.LoadMem(asm.R1, asm.R6, c.offset, size),
			asm.LoadImm(asm.R2, int64(value), asm.DWord),
			asm.JNE.Reg(asm.R1, asm.R2, "count"))
	}
	insns = append(insns, asm.StoreImm(asm.RFP, -4, sinkGood, asm.Word))
	if s.times != nil {
		insns = append(insns, s.noteTime(w.stamp)...)
	}
	return append(insns,
		asm.LoadMapPtr(asm.R1, s.counters.FD()).WithSymbol("count"),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord),
		asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R0, 0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, verdict).WithSymbol("out"),
		asm.Return(),
	)
}

// noteTime notes how long a frame with a time in it was under way, while there is room.
func (s *sink) noteTime(stamp int16) asm.Instructions {
	return asm.Instructions{
		asm.LoadMem(asm.R7, asm.R6, stamp, asm.DWord),
		asm.JEq.Imm(asm.R7, 0, "count"), // from before
		asm.FnKtimeGetNs.Call(),
		asm.Sub.Reg(asm.R0, asm.R7),
		asm.Mov.Reg(asm.R7, asm.R0),
		asm.LoadMapValue(asm.R2, s.times.FD(), 0),
		asm.LoadMem(asm.R1, asm.R2, 0, asm.DWord),
		asm.JGE.Imm(asm.R1, maxSamples, "count"),
		asm.Mov.Reg(asm.R3, asm.R1),
		asm.Add.Imm(asm.R3, 1),
		asm.StoreMem(asm.R2, 0, asm.R3, asm.DWord), // one core has all frames
		asm.StoreMem(asm.RFP, -8, asm.R1, asm.Word),
		asm.LoadMapPtr(asm.R1, s.samples.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -8),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "count"),
		asm.StoreMem(asm.R0, 0, asm.R7, asm.DWord),
	}
}

// count reads a slot of the counters.
func (s *sink) count(t testing.TB, slot uint32) (sum uint64) {
	t.Helper()
	var perCPU []uint64
	if err := s.counters.Lookup(slot, &perCPU); err != nil {
		t.Fatalf("read the sink's counter %d: %v", slot, err)
	}
	for _, v := range perCPU {
		sum += v
	}
	return sum
}

// underWay returns the times that were noted, sorted, in ns.
func (s *sink) underWay(t testing.TB) []uint64 {
	t.Helper()
	var n uint64
	if err := s.times.Lookup(uint32(0), &n); err != nil {
		t.Fatalf("read how many times were noted: %v", err)
	}
	keys, times := make([]uint32, n), make([]uint64, n)
	if len(keys) == 0 {
		return nil
	}
	var cursor ebpf.MapBatchCursor
	if got, err := s.samples.BatchLookup(&cursor, keys, times, nil); got != len(keys) {
		t.Fatalf("read %d times: %d, %v", len(keys), got, err)
	}
	slices.Sort(times)
	return times
}

// attachXDP attaches a program to an interface of the dut namespace, in native mode.
func (d *bed) attachXDP(t testing.TB, p *port, insns asm.Instructions) (attached link.Link) {
	t.Helper()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "peers_dut", Type: ebpf.XDP, License: "Apache-2.0", Instructions: insns})
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close() // the link keeps it
	d.dut.Do(t, func() {
		if attached, err = link.AttachXDP(link.XDPOptions{Program: prog, Interface: p.index, Flags: link.XDPDriverMode}); err != nil {
			t.Fatalf("attach an XDP program to %s: %v", p.name, err)
		}
	})
	return attached
}

// always returns a program that has one verdict.
func always(verdict int32) asm.Instructions {
	return asm.Instructions{asm.Mov.Imm(asm.R0, verdict), asm.Return()}
}
