package bpf

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// A program that is bound to a device must stay where it was loaded: Linux up to 6.18 moves
// one that outgrows its pages while the verifier rewrites it, does not move what ties it to the
// device, and ends with its lock of all network devices held when the device goes. So such a
// program brings room along: instructions that are never reached, which the verifier takes out
// before it puts anything in, and whose pages stay.

// errGrown says that the kernel may have moved a program that is bound to a device.
var errGrown = errors.New("it must not outgrow its pages while it is bound to a device")

// boundRoom is how many instructions there are room for, beyond those of a bound program.
const boundRoom = 4096

// withRoom returns instructions that do what ins do, with boundRoom more that are jumped over
// on a condition that the verifier knows. The first instruction stays the first.
func withRoom(ins asm.Instructions) asm.Instructions {
	out := make(asm.Instructions, 0, len(ins)+boundRoom+2)
	out = append(out, ins[0],
		asm.Mov.Imm(asm.R0, 0),
		asm.Instruction{OpCode: asm.JEq.Op(asm.ImmSource), Dst: asm.R0, Offset: boundRoom})
	for range boundRoom {
		out = append(out, asm.Mov.Imm(asm.R0, 0))
	}
	return append(out, ins[1:]...)
}

// progHeader is more than what the kernel has in front of a program's instructions, bytes.
const progHeader = 128

// stayed reports an error if a bound program may not be where it was loaded any more.
func stayed(p *ebpf.Program, spec *ebpf.ProgramSpec) error {
	info, err := p.Info()
	if err != nil {
		return fmt.Errorf("ask about the program: %w", err)
	}
	size, err := info.TranslatedSize()
	if err != nil {
		return fmt.Errorf("ask for the program's size: %w", err)
	}
	loaded := int(spec.Instructions.Size())
	page := os.Getpagesize()
	pages := func(bytes int) int { return (bytes + page - 1) / page }
	if now, was := pages(progHeader+size), pages(loaded); now > was {
		return fmt.Errorf("the kernel has made a program of %d bytes one of %d, on %d pages instead of %d: %w", loaded, size, now, was, errGrown)
	}
	return nil
}

// blinds reports whether the kernel hides constants of programs in others
// (net.core.bpf_jit_harden), and so moves each program. Where it does not say, it does not.
func blinds() bool {
	b, err := os.ReadFile("/proc/sys/net/core/bpf_jit_harden")
	return err == nil && bytes.Equal(bytes.TrimSpace(b), []byte("2"))
}
