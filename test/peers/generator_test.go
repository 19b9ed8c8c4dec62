package peers

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

const (
	liveFlag = 1 << 1 // BPF_F_TEST_XDP_LIVE_FRAMES
	// flowMask gives the load 1024 flows: UDP source ports that differ.
	flowMask  = 1023
	firstPort = 0xc000

	// pacedBatch is how many frames a paced generator makes between two flushes.
	pacedBatch = 8
	// pacedTurns is how often a paced generator looks at the clock in one burst.
	pacedTurns = 2_000_000
	// slack bounds what a paced generator catches up on when it was kept from sending.
	slack = 20 * time.Microsecond
)

// load holds the generator's counts of a run.
type load struct {
	frames uint64
	cpu    time.Duration // of its thread and its core's ksoftirqd, softirqs on top of them included
	wall   time.Duration
}

func (l *load) perFrame() time.Duration { return l.cpu / time.Duration(l.frames) }

func (l *load) rate() float64 { return float64(l.frames) / l.wall.Seconds() }

// fill returns how many frames take a while at this rate.
func (l *load) fill(d time.Duration) uint32 {
	return uint32(max(l.rate()*d.Seconds(), 2*firstFrames))
}

// generator sends the frames of a job by BPF test runs, on a core of its own.
type generator struct {
	bed *bed
	// setup is what a burst costs beside its frames: some 15 ms in which nothing is sent.
	setup load
}

func newGenerator(t testing.TB, d *bed) *generator {
	g := &generator{bed: d}
	s, _ := d.job.frames(d, 64)
	for range 3 {
		l := g.send(t, &s, 64)
		if g.setup.wall == 0 || l.wall < g.setup.wall {
			g.setup = l
		}
	}
	return g
}

// send sends a burst as fast as the generator can.
func (g *generator) send(t testing.TB, s *sent, frames uint32) load {
	t.Helper()
	return g.run(t, s, 0, func(prog *ebpf.Program) (bursts int) {
		burst(t, prog, s.frame, frames, 0)
		return 1
	})
}

// pace sends frames that have the time in them, one each interval, for a while.
func (g *generator) pace(t testing.TB, s *sent, interval, lasting time.Duration) load {
	t.Helper()
	return g.run(t, s, interval, func(prog *ebpf.Program) (bursts int) {
		for end := time.Now().Add(lasting); bursts == 0 || time.Now().Before(end); bursts++ {
			burst(t, prog, s.frame, pacedTurns, pacedBatch)
		}
		return bursts
	})
}

func burst(t testing.TB, prog *ebpf.Program, frame []byte, times, batch uint32) {
	if _, err := prog.Run(&ebpf.RunOptions{Data: frame, Repeat: times, BatchSize: batch, Flags: liveFlag}); err != nil {
		t.Fatalf("send a burst: %v", err)
	}
}

// run loads a generator and has it measured. bursts says how many bursts it has made.
func (g *generator) run(t testing.TB, s *sent, interval time.Duration, bursts func(prog *ebpf.Program) int) (l load) {
	t.Helper()
	d := g.bed
	d.gen.Do(t, func() {
		bind(t, 0, genCore)
		hurry(t)
		state, err := ebpf.NewMap(&ebpf.MapSpec{Name: "peers_gen", Type: ebpf.Array, KeySize: 4, ValueSize: 16, MaxEntries: 1})
		if err != nil {
			t.Fatalf("generator's counter: %v", err)
		}
		defer state.Close()
		prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "peers_gen", Type: ebpf.XDP, Instructions: generatorCode(state.FD(), d.load.index, s, interval), License: "Apache-2.0"})
		if err != nil {
			t.Fatalf("load the generator: %v", err)
		}
		defer prog.Close()
		cpu := func() time.Duration {
			return cpuTime(t, unix.CLOCK_THREAD_CPUTIME_ID) + cpuOf(t, d.ksoftirqd[genCore])
		}
		before, start := cpu(), time.Now()
		n := time.Duration(bursts(prog))
		l.wall, l.cpu = time.Since(start)-n*g.setup.wall, cpu()-before-n*g.setup.cpu
		var counts [2]uint64
		if err := state.Lookup(uint32(0), &counts); err != nil || counts[0] == 0 {
			t.Fatalf("the generator sent %d frames: %v", counts[0], err)
		}
		l.frames = counts[0]
	})
	return l
}

// generatorCode writes the beginning of the frame afresh, as devices change frames in
// place and the kernel gives their pages again; gives it the next source port; and
// redirects it out of the interface. With an interval it sends a frame only when that
// has passed, and writes the time into it. The map has two words: how many frames were sent,
// and when the next one is due.
func generatorCode(state, ifindex int, s *sent, interval time.Duration) asm.Instructions {
	const xdpAborted = 0
	insns := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMapValue(asm.R9, state, 0),
	}
	if interval > 0 {
		insns = append(insns,
			asm.FnKtimeGetNs.Call(),
			asm.Mov.Reg(asm.R8, asm.R0),
			asm.LoadMem(asm.R1, asm.R9, 8, asm.DWord),
			asm.JLT.Reg(asm.R8, asm.R1, "drop"),
			asm.Mov.Reg(asm.R2, asm.R8),
			asm.Sub.Imm(asm.R2, int32(slack)),
			asm.JGE.Reg(asm.R1, asm.R2, "due"),
			asm.Mov.Reg(asm.R1, asm.R2),
			asm.Add.Imm(asm.R1, int32(interval)).WithSymbol("due"),
			asm.StoreMem(asm.R9, 8, asm.R1, asm.DWord),
		)
	}
	insns = append(insns,
		asm.LoadMem(asm.R7, asm.R9, 0, asm.DWord),
		asm.Mov.Reg(asm.R1, asm.R7),
		asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R9, 0, asm.R1, asm.DWord),
		asm.LoadMem(asm.R2, asm.R6, 0, asm.Word), // xdp_md.data
		asm.LoadMem(asm.R3, asm.R6, 4, asm.Word), // xdp_md.data_end
	)
	template := s.frame[:(s.stamp+8+7)&^7]
	insns = append(insns,
		asm.Mov.Reg(asm.R4, asm.R2),
		asm.Add.Imm(asm.R4, int32(len(template))),
		asm.JGT.Reg(asm.R4, asm.R3, "drop"),
	)
	insns = append(insns, writeTemplate(asm.R2, template)...)
	insns = append(insns, asm.And.Imm(asm.R7, flowMask), asm.Or.Imm(asm.R7, firstPort), asm.HostTo(asm.BE, asm.R7, asm.Half))
	for _, off := range s.ports {
		insns = append(insns, asm.StoreMem(asm.R2, off, asm.R7, asm.Half))
	}
	if interval > 0 {
		insns = append(insns, asm.StoreMem(asm.R2, s.stamp, asm.R8, asm.DWord))
	}
	return append(insns,
		asm.Mov.Imm(asm.R1, int32(ifindex)),
		asm.Mov.Imm(asm.R2, 0),
		asm.FnRedirect.Call(),
		asm.Return(),
		asm.Mov.Imm(asm.R0, xdpDrop).WithSymbol("drop"),
		asm.Return(),
	)
}

// writeTemplate stores bytes, a multiple of 8, from where a register points to. It uses R1.
func writeTemplate(to asm.Register, b []byte) (insns asm.Instructions) {
	for i := 0; i+8 <= len(b); i += 8 {
		insns = append(insns,
			asm.LoadImm(asm.R1, int64(binary.NativeEndian.Uint64(b[i:])), asm.DWord),
			asm.StoreMem(to, int16(i), asm.R1, asm.DWord))
	}
	return insns
}
