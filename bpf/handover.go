package bpf

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Handle names the parts of an attached program that go to another process as
// descriptors.
type Handle struct {
	// Fingerprint tells the object and all constants of the program: see
	// [Config.Fingerprint].
	Fingerprint string
	Mode        Mode // how it is attached
	Ifindex     int  // of a closed port: the interface that the claim is for
	Tags        bool // it reads VLAN tags that the driver took off
	Parts       []Part
}

// Part is a descriptor of a Handle.
type Part uint8

// The parts.
const (
	PartProgram Part = iota + 1
	PartSockets      // the XSKMAP
	PartCounters
	PartLink  // of an open port
	PartClaim // of a closed one
)

// Fingerprint tells programs apart that do not do the same. It depends on the embedded
// object and on everything that [Load] puts into it.
func (c *Config) Fingerprint() string {
	h := sha256.New()
	h.Write(_LoomBytes)
	fmt.Fprintf(h, "%d %v %d %d %t %d %d", c.Kind, c.VTEP, c.VXLANPort, c.Seed, c.Closed, c.Queues, c.Device)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Handle returns what another process needs to go on with an attached program by
// [Adopt], and copies of the descriptors in the order of Parts. The caller closes the
// copies.
func (p *Program) Handle() (h Handle, files []*os.File, err error) {
	if p.prog == nil || p.link == nil && p.claim == nil {
		return h, nil, fmt.Errorf("hand over %s: %w", p.cfg.name(), os.ErrClosed)
	}
	h = Handle{Fingerprint: p.cfg.Fingerprint(), Mode: p.mode, Ifindex: p.claimed, Tags: p.tags}
	add := func(part Part, fd int) {
		if err != nil {
			return
		}
		var n int
		if n, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err == nil {
			h.Parts, files = append(h.Parts, part), append(files, os.NewFile(uintptr(n), p.cfg.name()))
		}
	}
	add(PartProgram, p.prog.FD())
	add(PartSockets, p.sockets.FD())
	add(PartCounters, p.counters.FD())
	if l, ok := p.link.(interface{ FD() int }); ok {
		add(PartLink, l.FD())
	}
	if l, ok := p.claim.(*net.UnixListener); ok && err == nil {
		var raw syscall.RawConn
		if raw, err = l.SyscallConn(); err == nil {
			err = errors.Join(raw.Control(func(fd uintptr) { add(PartClaim, int(fd)) }), err)
		}
	}
	if err != nil {
		for _, f := range files {
			f.Close()
		}
		return h, nil, fmt.Errorf("hand over %s: %w", p.cfg.name(), err)
	}
	return h, files, nil
}

// Adopt goes on with a program that another process attached, from its handle and the
// descriptors beside it, which Adopt closes. cfg must be what that process loaded it for
// if the fingerprints agree; if they do not, the program is good for [Program.Replace] and
// for its counters only. From now on both processes hold it, and it stays attached until
// both have closed it, or one has detached it.
func Adopt(cfg Config, h Handle, files []*os.File) (*Program, error) {
	p := &Program{cfg: cfg, tags: h.Tags, mode: h.Mode, claimed: h.Ifindex}
	var errs []error
	for i, part := range h.Parts {
		if i < len(files) {
			errs = append(errs, p.adopt(part, files[i]))
		}
	}
	for _, f := range files {
		f.Close()
	}
	switch {
	case len(files) != len(h.Parts):
		errs = append(errs, fmt.Errorf("%d descriptors came for %d parts", len(files), len(h.Parts)))
	case p.prog == nil || p.sockets == nil || p.counters == nil || p.link == nil && p.claim == nil:
		errs = append(errs, fmt.Errorf("parts %v are not a program", h.Parts))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(fmt.Errorf("take over %s: %w", cfg.name(), err), p.abandon())
	}
	return p, nil
}

func (p *Program) adopt(part Part, f *os.File) (err error) {
	// What follows owns the number that it is given, also if it fails.
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	switch part {
	case PartProgram:
		p.prog, err = ebpf.NewProgramFromFD(fd)
	case PartSockets:
		p.sockets, err = ebpf.NewMapFromFD(fd)
	case PartCounters:
		p.counters, err = ebpf.NewMapFromFD(fd)
	case PartLink:
		p.link, err = link.NewFromFD(fd)
	case PartClaim:
		_ = unix.Close(fd)
		p.claim, err = net.FileListener(f)
	default:
		err = errors.Join(fmt.Errorf("unknown part %d", part), unix.Close(fd))
	}
	return err
}

// Fits reports whether the program is what cfg would load. One that shares tables with the
// other ports of its process is not: its process has others.
func (h *Handle) Fits(cfg *Config) bool {
	return cfg.Routes == nil && cfg.Rule == nil && cfg.Fast == nil && h.Fingerprint == cfg.Fingerprint()
}

// Replace puts p in the place of an attached program of the same interface, in one step:
// each frame meets the one or the other. p takes over the attachment. The caller reads
// what old has counted, and closes it. If it fails, old stays attached.
func (p *Program) Replace(old *Program) error {
	if p.prog == nil || old.prog == nil {
		return fmt.Errorf("replace %s: %w", p.cfg.name(), os.ErrClosed)
	}
	var err error
	switch {
	case old.link != nil && !p.cfg.Closed:
		err = old.link.Update(p.prog)
	case old.claim != nil && p.cfg.Closed:
		err = setXDP(old.claimed, p.prog, old.mode)
	default: // an open port that is to be closed, or the other way round
		return fmt.Errorf("replace %s: an attachment that ends with its process cannot become one that stays, nor the other way round: restart for that", p.cfg.name())
	}
	if err != nil {
		return fmt.Errorf("replace %s: %w", p.cfg.name(), err)
	}
	p.link, p.claim, p.claimed, p.mode = old.link, old.claim, old.claimed, old.mode
	old.link, old.claim = nil, nil
	if p.claim != nil {
		p.note()
	}
	return nil
}

// abandon closes the process's descriptors of a program and leaves the attachment to
// whoever else has it.
func (p *Program) abandon() error {
	var err error
	if p.link != nil {
		err = p.link.Close() // the last descriptor of a link ends it, and this is not the last
		p.link = nil
	}
	return errors.Join(err, p.Close())
}
