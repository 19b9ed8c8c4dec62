package bpf

import (
	"os"
	"testing"

	"github.com/cilium/ebpf/asm"
)

// TestBoundProgramsKeepTheirPages: a program that is bound to a device must not outgrow the
// pages that it was allocated with while the verifier rewrites it. Kernels that do not move
// what ties it to the device then, fault when the device goes. The program without tags is
// not bound, and rewritten alike: it tells by how much.
func TestBoundProgramsKeepTheirPages(t *testing.T) {
	const (
		header = 72 // struct bpf_prog before its instructions, bytes
		call   = 64 // what the one function more may become, instructions; far more than it does
	)
	spec, err := loadLoom()
	if err != nil {
		t.Fatal(err)
	}
	page := os.Getpagesize()
	pages := func(instructions int) int { return (header + instructions*asm.InstructionSize + page - 1) / page }
	for _, rule := range []*Rule{nil, newRule(t, RuleSize{1, 1, 1})} {
		cfg := config(Access)
		cfg.Rule = rule
		p := newRunner(t, cfg)
		info, err := p.prog.Info()
		if err != nil {
			t.Fatal(err)
		}
		size, err := info.TranslatedSize()
		if err != nil {
			t.Fatal(err)
		}
		length := func(tags bool) int {
			return int(spec.Programs[cfg.section(tags)].Instructions.Size()) / asm.InstructionSize
		}
		growth := max(0, size/asm.InstructionSize-length(false))
		bound := length(true)
		t.Logf("%s: %d instructions, %d pages; %s grows by %d", cfg.section(true), bound, pages(bound), cfg.section(false), growth)
		if grown := bound + growth + call; pages(grown) != pages(bound) {
			t.Errorf("%s has %d instructions, on %d pages, and may become %d on %d: make it shorter", cfg.section(true), bound, pages(bound), grown, pages(grown))
		}
	}
}
