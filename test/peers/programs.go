package main

import (
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
)

// flowMask gives the load 1024 flows: UDP source ports that differ.
const flowMask = 1023

// Offsets in the frame that the programs touch: IPv4 without options, UDP.
const (
	offUDPSource = 14 + 20
	offUDPDest   = 14 + 20 + 2
	offVXLAN     = 14 + 20 + 8
)

// newGenerator loads the program for BPF test runs. It gives each frame the next
// source port and redirects it out of the interface, or drops it if ifindex is 0.
// The map counts frames.
func newGenerator(ifindex int) (*ebpf.Program, *ebpf.Map, error) {
	counter, err := ebpf.NewMap(&ebpf.MapSpec{Name: "peers_gen", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		return nil, nil, fmt.Errorf("generator's counter: %w", err)
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
	}
	if ifindex != 0 {
		insns = append(insns,
			asm.Mov.Imm(asm.R1, int32(ifindex)),
			asm.Mov.Imm(asm.R2, 0),
			asm.FnRedirect.Call(),
			asm.Return(),
		)
	} else {
		insns = append(insns, asm.Mov.Imm(asm.R0, xdpDrop), asm.Return())
	}
	insns = append(insns, asm.Mov.Imm(asm.R0, xdpAborted).WithSymbol("abort"), asm.Return())
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "peers_gen", Type: ebpf.XDP, Instructions: insns, License: "Apache-2.0"})
	if err != nil {
		counter.Close()
		return nil, nil, fmt.Errorf("load the generator: %w", err)
	}
	return prog, counter, nil
}

// Verdicts of attachXDP's program.
const (
	xdpDrop = 1
	xdpPass = 2
)

// attachXDP attaches a program that always returns verdict to an interface of
// the dut namespace, in native mode.
func (b *bench) attachXDP(name string, verdict int32) (attached link.Link, err error) {
	err = b.inNS("dut", -1, func() error {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "peers_verdict", Type: ebpf.XDP, License: "Apache-2.0",
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, verdict), asm.Return()}})
		if err != nil {
			return err
		}
		defer prog.Close() // the link keeps it
		attached, err = link.AttachXDP(link.XDPOptions{Program: prog, Interface: l.Attrs().Index, Flags: link.XDPDriverMode})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("attach an XDP program to %s: %w", name, err)
	}
	return attached, nil
}

// Slots of the sink's map.
const (
	sinkGood  = iota // VXLAN of our VNI
	sinkOther        // anything else
	sinkSlots
)

type sink struct {
	counters *ebpf.Map
	link     link.Link
}

// newSink attaches a counting and dropping program to the ingress of an
// interface of the calling thread's namespace. It works on socket buffers
// (TCX). Native XDP would copy every buffer that came through the stack, and the
// benchmark would mostly measure that.
func newSink(ifindex int, vni uint32) (*sink, error) {
	counters, err := ebpf.NewMap(&ebpf.MapSpec{Name: "peers_sink", Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: sinkSlots})
	if err != nil {
		return nil, fmt.Errorf("sink's counters: %w", err)
	}
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
		counters.Close()
		return nil, fmt.Errorf("load the sink: %w", err)
	}
	defer prog.Close() // the link keeps it
	l, err := link.AttachTCX(link.TCXOptions{Interface: ifindex, Program: prog, Attach: ebpf.AttachTCXIngress})
	if err != nil {
		counters.Close()
		return nil, fmt.Errorf("attach the sink (TCX needs Linux 6.6): %w", err)
	}
	return &sink{counters, l}, nil
}

func (s *sink) read(slot uint32) (uint64, error) {
	var perCPU []uint64
	if err := s.counters.Lookup(slot, &perCPU); err != nil {
		return 0, fmt.Errorf("read the sink's counter %d: %w", slot, err)
	}
	var sum uint64
	for _, v := range perCPU {
		sum += v
	}
	return sum, nil
}

func (s *sink) Close() {
	s.link.Close()
	s.counters.Close()
}
