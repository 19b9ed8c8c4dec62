package bpf

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// TestBoundProgramsHaveRoom: a program that is bound to a device must not outgrow the pages that
// it was loaded into, see bound.go. The program without tags is not bound, and rewritten alike:
// it tells by how much.
func TestBoundProgramsHaveRoom(t *testing.T) {
	const call = 64 // what the one function more may become, instructions; far more than it does
	spec, err := loadLoom()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		rule *Rule
		fast *Fast
	}{{nil, nil}, {newRule(t, RuleSize{1, 1, 1}), nil}, {nil, openFastLeaf(t)}} {
		cfg := config(Access)
		cfg.Rule, cfg.Fast = c.rule, c.fast
		p := newRunner(t, cfg)
		info, err := p.prog.Info()
		if err != nil {
			t.Fatal(err)
		}
		size, err := info.TranslatedSize()
		if err != nil {
			t.Fatal(err)
		}
		length := int(spec.Programs[cfg.section(false)].Instructions.Size()) / asm.InstructionSize
		growth := max(0, size/asm.InstructionSize-length)
		t.Logf("%s: %d instructions, grows by %d", cfg.section(false), length, growth)
		if 2*(growth+call) > boundRoom {
			t.Errorf("%s grows by %d instructions, and brings room for %d: there should be twice as much", cfg.section(true), growth, boundRoom)
		}
	}
}

// The verifier takes the room out again: what runs is as long as without it.
func TestRoomIsTakenOut(t *testing.T) {
	sizes := make([]int, 2)
	for i := range sizes {
		ins := asm.Instructions{asm.Mov.Imm(asm.R1, 7), asm.Mov.Reg(asm.R0, asm.R1), asm.Return()}
		if i == 1 {
			ins = withRoom(ins)
		}
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL", Instructions: ins})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		got, err := p.Run(&ebpf.RunOptions{Data: make([]byte, 14)})
		if err != nil || got != 7 {
			t.Fatalf("returned %d, %v; want 7", got, err)
		}
		info, err := p.Info()
		if err != nil {
			t.Fatal(err)
		}
		if sizes[i], err = info.TranslatedSize(); err != nil {
			t.Fatal(err)
		}
	}
	if more := (sizes[1] - sizes[0]) / asm.InstructionSize; more > 2 {
		t.Errorf("with room the program has %d instructions more", more)
	}
}

// openFastLeaf returns tables of a leaf for two ports with one queue.
func openFastLeaf(t testing.TB) *Fast {
	t.Helper()
	f, err := OpenFast(FastSize{Ports: 2, Queues: 1, FDB: 2 * fastBucket, TopMetric: 7})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}
