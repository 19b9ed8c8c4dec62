package xsk

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// SocketState describes a bound socket to a process that gets its descriptor. The
// positions of the rings are not in it: they are in the rings' memory, and each side
// publishes every step.
type SocketState struct {
	Config     SocketConfig
	NeedWakeup bool   // the kernel says on the rings when it wants a system call
	Budget     int    // frames that one system call sends in copy mode
	Refusal    string // why the driver does not do zero-copy; "": it does, or was not asked
	Counters   Counters
}

// State returns what [Adopt] needs to go on with the socket elsewhere.
func (s *Socket) State() SocketState {
	st := SocketState{Config: s.cfg, NeedWakeup: s.needWakeup, Budget: s.budget, Counters: s.counters}
	if s.refusal != nil {
		st.Refusal = s.refusal.Error()
	}
	return st
}

// Config returns how the area is divided.
func (u *Umem) Config() UmemConfig { return u.cfg }

// Memory returns the memfd of the area, for another process to map: see [AdoptUmem].
// The Umem keeps it.
func (u *Umem) Memory() int { return u.memory }

// AdoptUmem maps a packet area that another process made, from a descriptor of its
// memfd, and faults it in. It owns the descriptor from now on, also if it fails. The
// kernel's registration of the area stays with the sockets that [Adopt] takes over.
//
// Frames belong to one process at a time. That is the callers' business.
func AdoptUmem(cfg UmemConfig, fd int) (*Umem, error) {
	if err := cfg.Validate(); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, errors.Join(fmt.Errorf("xsk: adopt UMEM: %w", err), unix.Close(fd))
	}
	if st.Size != int64(cfg.size()) {
		return nil, errors.Join(fmt.Errorf("xsk: adopt UMEM: the memory file has %d bytes, and %d frames of %d bytes are %d", st.Size, cfg.Frames, cfg.FrameSize, cfg.size()), unix.Close(fd))
	}
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || seals&sizeSeals != sizeSeals {
		return nil, errors.Join(fmt.Errorf("xsk: adopt UMEM: the size of the memory file is not sealed (seals %#x, %w)", seals, err), unix.Close(fd))
	}
	u, err := mapUmem(cfg, fd)
	if err != nil {
		return nil, err
	}
	// The kernel has pinned the pages of a registered area: they are there, and need
	// only entries in this process's page table. Without them each frame's first use
	// would cost a fault. Kernels before 5.14 refuse.
	_ = unix.Madvise(u.area, unix.MADV_POPULATE_WRITE)
	return u, nil
}

// Adopt goes on with a socket that another process opened on the area of u, from a
// descriptor of it. It maps the rings and starts where they stand. It owns the
// descriptor from now on, also if it fails. Until the other process has stopped using the
// socket, call nothing but [Socket.Resume] and [Socket.Close].
func Adopt(u *Umem, fd int, state SocketState) (*Socket, error) {
	s := &Socket{fd: uintptr(fd), umem: u, cfg: state.Config, counters: state.Counters, needWakeup: state.NeedWakeup}
	if err := s.adopt(&state); err != nil {
		return nil, errors.Join(fmt.Errorf("xsk: adopt %s: %w", s.cfg.label(), err), s.release())
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.area == nil {
		return nil, errors.Join(fmt.Errorf("xsk: adopt %s: the UMEM is closed", s.cfg.label()), s.release())
	}
	g := &u.copy
	if s.zeroCopy {
		g = &u.zero
	}
	g.sockets = append(g.sockets, s)
	u.inUse++
	return s, nil
}

func (s *Socket) adopt(state *SocketState) error {
	if err := s.cfg.Validate(); err != nil {
		return err
	}
	domain, err := unix.GetsockoptInt(s.FD(), unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return &stepError{"read SO_DOMAIN", err}
	}
	if domain != unix.AF_XDP {
		return fmt.Errorf("descriptor %d is a socket of family %d, not AF_XDP", s.FD(), domain)
	}
	if s.poke() == unix.ENXIO {
		return errors.New("the socket is not bound to an interface any more")
	}
	options, err := unix.GetsockoptInt(s.FD(), unix.SOL_XDP, unix.XDP_OPTIONS)
	if err != nil {
		return &stepError{"read XDP_OPTIONS", err}
	}
	s.zeroCopy = options&unix.XDP_OPTIONS_ZEROCOPY != 0
	if state.Refusal != "" {
		s.refusal = errors.New(state.Refusal)
	}
	s.noteBudget(max(state.Budget, kernelBudget))
	return s.layRings()
}

// Resume reads the positions of the rings again, which the other process has moved since
// [Adopt]. Call it once, when that one has stopped.
func (s *Socket) Resume(state *SocketState) {
	s.rx.reread()
	s.tx.reread()
	s.fill.reread()
	s.completion.reread()
	s.counters = state.Counters
	// Every transmitted frame is completed once.
	s.pending = int(s.tx.prod - s.completion.cons)
}
