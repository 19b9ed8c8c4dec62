package peers

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

const (
	// burst is how many frames one test run sends. Setting one up costs some
	// 15 ms, so short bursts would measure pauses.
	burst    = 400_000
	liveFlag = 1 << 1 // BPF_F_TEST_XDP_LIVE_FRAMES
	// warmUp fills caches and flow tables.
	warmUp = 500 * time.Millisecond
	// flowMask gives the load 1024 flows: UDP source ports that differ.
	flowMask = 1023
)

// load holds the generator's counts of a run.
type load struct {
	frames uint64
	cpu    time.Duration // of its thread, softirqs that ran on top of it included
	wall   time.Duration
}

func (l *load) perFrame() time.Duration { return l.cpu / time.Duration(l.frames) }

// lasting returns a loop's condition that holds for a time.
func lasting(d time.Duration) func() bool {
	start := time.Now()
	return func() bool { return time.Since(start) < d }
}

// generate sends bursts of the frame while more returns true.
func (d *bed) generate(b *testing.B, f []byte, more func() bool) (l load) {
	b.Helper()
	d.gen.Do(b, func() {
		bind(b, 0, genCore)
		prog, counter := newGenerator(b, d.loadIndex)
		defer prog.Close()
		defer counter.Close()
		before, start := cpuTime(b, unix.CLOCK_THREAD_CPUTIME_ID), time.Now()
		for more() {
			if _, err := prog.Run(&ebpf.RunOptions{Data: f, Repeat: burst, Flags: liveFlag}); err != nil {
				b.Fatalf("send a burst: %v", err)
			}
		}
		l.wall, l.cpu = time.Since(start), cpuTime(b, unix.CLOCK_THREAD_CPUTIME_ID)-before
		if err := counter.Lookup(uint32(0), &l.frames); err != nil || l.frames == 0 {
			b.Fatalf("the generator sent %d frames: %v", l.frames, err)
		}
	})
	return l
}

// baseline measures the generator against a receiver that drops at once. The result
// is the cost of a frame before the device under test works on it.
func (d *bed) baseline(b *testing.B, f []byte) time.Duration {
	b.Helper()
	attached := d.attachXDP(b, "acc", xdpDrop)
	defer attached.Close()
	l := d.generate(b, f, lasting(warmUp))
	return l.perFrame()
}

// frame returns an Ethernet frame of n bytes: UDP over IPv4 from a host to one
// behind the other VTEP.
func frame(n int) []byte {
	f := make([]byte, n)
	copy(f, []byte{2, 0, 0, 0, 0x0b, 2, 2, 0, 0, 0, 0x0a, 1, 0x08, 0})
	ip := f[14:]
	ip[0], ip[8], ip[9] = 0x45, 64, 17
	binary.BigEndian.PutUint16(ip[2:], uint16(n-14))
	copy(ip[12:], []byte{192, 168, 0, 1, 192, 168, 0, 2})
	var sum uint32
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum))
	udp := ip[20:]
	binary.BigEndian.PutUint16(udp[2:], 9) // discard
	binary.BigEndian.PutUint16(udp[4:], uint16(n-14-20))
	return f
}

// Offsets in the frame that the programs touch: IPv4 without options, UDP.
const (
	offUDPSource = 14 + 20
	offUDPDest   = 14 + 20 + 2
	offVXLAN     = 14 + 20 + 8
)

// newGenerator loads the program for BPF test runs. It gives each frame the next
// source port and redirects it out of the interface. The map counts frames.
func newGenerator(b *testing.B, ifindex int) (*ebpf.Program, *ebpf.Map) {
	b.Helper()
	counter, err := ebpf.NewMap(&ebpf.MapSpec{Name: "peers_gen", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		b.Fatalf("generator's counter: %v", err)
	}
	const xdpAborted = 0
	insns := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, counter.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "abort"),
		asm.LoadMem(asm.R7, asm.R0, 0, asm.DWord),
		asm.Mov.Reg(asm.R8, asm.R7),
		asm.Add.Imm(asm.R8, 1),
		asm.StoreMem(asm.R0, 0, asm.R8, asm.DWord),
		asm.LoadMem(asm.R2, asm.R6, 0, asm.Word), // xdp_md.data
		asm.LoadMem(asm.R3, asm.R6, 4, asm.Word), // xdp_md.data_end
		asm.Mov.Reg(asm.R4, asm.R2),
		asm.Add.Imm(asm.R4, offUDPDest),
		asm.JGT.Reg(asm.R4, asm.R3, "abort"),
		asm.And.Imm(asm.R7, flowMask),
		asm.StoreMem(asm.R2, offUDPSource, asm.R7, asm.Half),
		asm.Mov.Imm(asm.R1, int32(ifindex)),
		asm.Mov.Imm(asm.R2, 0),
		asm.FnRedirect.Call(),
		asm.Return(),
		asm.Mov.Imm(asm.R0, xdpAborted).WithSymbol("abort"),
		asm.Return(),
	}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "peers_gen", Type: ebpf.XDP, Instructions: insns, License: "Apache-2.0"})
	if err != nil {
		counter.Close()
		b.Fatalf("load the generator: %v", err)
	}
	return prog, counter
}

// Verdicts of attachXDP's program.
const (
	xdpDrop = 1
	xdpPass = 2
)

// attachXDP attaches a program that always returns verdict to an interface of
// the dut namespace, in native mode.
func (d *bed) attachXDP(b *testing.B, name string, verdict int32) (attached link.Link) {
	b.Helper()
	index := d.dut.Link(b, name).Attrs().Index
	d.dut.Do(b, func() {
		prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "peers_verdict", Type: ebpf.XDP, License: "Apache-2.0",
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, verdict), asm.Return()}})
		if err != nil {
			b.Fatal(err)
		}
		defer prog.Close() // the link keeps it
		if attached, err = link.AttachXDP(link.XDPOptions{Program: prog, Interface: index, Flags: link.XDPDriverMode}); err != nil {
			b.Fatalf("attach an XDP program to %s: %v", name, err)
		}
	})
	return attached
}

// Slots of the sink's map.
const (
	sinkGood  = iota // VXLAN of our VNI
	sinkOther        // anything else
	sinkSlots
)

// newSink attaches a counting and dropping program to the ingress of end, and
// returns its counters. It works on socket buffers (TCX). Native XDP would copy every
// buffer that came through the stack, and the benchmark would mostly measure that.
func (d *bed) newSink(b *testing.B) *ebpf.Map {
	b.Helper()
	counters, err := ebpf.NewMap(&ebpf.MapSpec{Name: "peers_sink", Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: sinkSlots})
	if err != nil {
		b.Fatalf("sink's counters: %v", err)
	}
	b.Cleanup(func() { counters.Close() })
	const tcxDrop, header = 2, 50
	half := func(b ...byte) int32 { return int32(binary.NativeEndian.Uint16(b)) }
	word := func(v uint32) int32 {
		return int32(binary.NativeEndian.Uint32(binary.BigEndian.AppendUint32(nil, v)))
	}
	at := func(off int16) int16 { return off - 58 } // header on the stack, so that the VNI is aligned
	insns := asm.Instructions{
		asm.StoreImm(asm.RFP, -4, sinkOther, asm.Word),
		asm.Mov.Imm(asm.R2, 0),
		asm.Mov.Reg(asm.R3, asm.RFP),
		asm.Add.Imm(asm.R3, int32(at(0))),
		asm.Mov.Imm(asm.R4, header),
		asm.FnSkbLoadBytes.Call(),
		asm.JNE.Imm(asm.R0, 0, "count"),
		asm.LoadMem(asm.R1, asm.RFP, at(12), asm.Half),
		asm.JNE.Imm(asm.R1, half(0x08, 0x00), "count"),
		asm.LoadMem(asm.R1, asm.RFP, at(23), asm.Byte),
		asm.JNE.Imm(asm.R1, 17, "count"),
		asm.LoadMem(asm.R1, asm.RFP, at(offUDPDest), asm.Half),
		asm.JNE.Imm(asm.R1, half(vxlanPort>>8, vxlanPort&0xff), "count"),
		asm.LoadMem(asm.R1, asm.RFP, at(offVXLAN), asm.Byte),
		asm.JNE.Imm(asm.R1, 0x08, "count"),
		asm.LoadMem(asm.R1, asm.RFP, at(offVXLAN+4), asm.Word),
		asm.JNE.Imm32(asm.R1, word(vni<<8), "count"),
		asm.StoreImm(asm.RFP, -4, sinkGood, asm.Word),
		asm.LoadMapPtr(asm.R1, counters.FD()).WithSymbol("count"),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord),
		asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R0, 0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, tcxDrop).WithSymbol("out"),
		asm.Return(),
	}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "peers_sink", Type: ebpf.SchedCLS, Instructions: insns, License: "Apache-2.0"})
	if err != nil {
		b.Fatalf("load the sink: %v", err)
	}
	defer prog.Close() // the link keeps it
	d.sink.Do(b, func() {
		l, err := link.AttachTCX(link.TCXOptions{Interface: d.endIndex, Program: prog, Attach: ebpf.AttachTCXIngress})
		if err != nil {
			b.Fatalf("attach the sink (TCX needs Linux 6.6): %v", err)
		}
		b.Cleanup(func() { l.Close() })
	})
	return counters
}

// count reads a slot of the sink's map.
func count(b *testing.B, sink *ebpf.Map, slot uint32) (sum uint64) {
	b.Helper()
	var perCPU []uint64
	if err := sink.Lookup(slot, &perCPU); err != nil {
		b.Fatalf("read the sink's counter %d: %v", slot, err)
	}
	for _, v := range perCPU {
		sum += v
	}
	return sum
}
