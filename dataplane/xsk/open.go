package xsk

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Rings in the order in which a socket keeps their mappings.
const (
	ringRX = iota
	ringTX
	ringFill
	ringCompletion
)

var rings = [4]struct {
	name   string
	option int
	page   int64
	slot   uintptr // bytes
}{
	ringRX:         {"RX", unix.XDP_RX_RING, unix.XDP_PGOFF_RX_RING, unsafe.Sizeof(Desc{})},
	ringTX:         {"TX", unix.XDP_TX_RING, unix.XDP_PGOFF_TX_RING, unsafe.Sizeof(Desc{})},
	ringFill:       {"fill", unix.XDP_UMEM_FILL_RING, unix.XDP_UMEM_PGOFF_FILL_RING, 8},
	ringCompletion: {"completion", unix.XDP_UMEM_COMPLETION_RING, unix.XDP_UMEM_PGOFF_COMPLETION_RING, 8},
}

const (
	// kernelBudget is how many frames one system call sends in copy mode by
	// default (the kernel's TX_BATCH_SIZE).
	kernelBudget = 32
	// wantBudget is what we ask for where XDP_MAX_TX_SKB_BUDGET exists.
	wantBudget = 1024
)

// stepError says which of Open's system calls failed.
type stepError struct {
	step string
	err  error
}

func (e *stepError) Error() string { return e.step + ": " + e.err.Error() }
func (e *stepError) Unwrap() error { return e.err }

// Open binds a socket to a queue of an interface. The first socket of a Umem
// registers the area with the kernel, the others share that registration; when
// the interfaces of all sharers have vanished meanwhile, the area is registered
// anew.
//
// [CopyAuto] tries zero-copy first and falls back to a copying socket;
// [Socket.ZeroCopy] reports the outcome. A busy queue is retried for
// SocketConfig.Retry. An error names the interface, the queue, the mode and a
// remedy, and leaves nothing open or mapped.
//
// A socket receives only what an XDP program redirects to it; that is not
// Open's business. Frames have to be filled before any can be received.
func Open(u *Umem, cfg SocketConfig) (*Socket, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Retry == 0 {
		cfg.Retry = DefaultRetry
	}
	deadline := time.Now().Add(cfg.Retry)
	for wait := time.Millisecond; ; wait = min(2*wait, 10*time.Millisecond) {
		s, err := u.open(&cfg)
		if err == nil {
			return s, nil
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().Add(wait).After(deadline) {
			return nil, fmt.Errorf("xsk: open %s, %s mode: %w; %s", cfg.label(), cfg.CopyMode, err, u.remedy(&cfg, err))
		}
		time.Sleep(wait)
	}
}

// open makes one attempt in each mode that cfg allows.
func (u *Umem) open(cfg *SocketConfig) (*Socket, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.area == nil {
		return nil, &stepError{"use UMEM", errors.New("it is closed")}
	}
	if cfg.CopyMode == ForceCopy || cfg.Generic {
		return u.openIn(&u.copy, cfg, unix.XDP_COPY)
	}
	s, err := u.openIn(&u.zero, cfg, unix.XDP_ZEROCOPY)
	if err == nil || cfg.CopyMode == ForceZero || !copyMayHelp(err) {
		return s, err
	}
	refusal := err
	if s, err = u.openIn(&u.copy, cfg, unix.XDP_COPY); err == nil {
		s.refusal = refusal
	}
	return s, err
}

// copyMayHelp reports whether copy mode may work after zero-copy failed with err.
// Drivers refuse zero-copy with various errors (no support, an MTU or queue they
// cannot), so every error counts except those with a known other cause.
func copyMayHelp(err error) bool {
	var step *stepError
	if !errors.As(err, &step) || step.step != "bind" {
		return false
	}
	return !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.EPERM)
}

// openIn opens a socket that shares the registration of g, or registers the
// area when g has no bound socket left. mode is XDP_COPY or XDP_ZEROCOPY.
func (u *Umem) openIn(g *group, cfg *SocketConfig, mode uint16) (*Socket, error) {
	for {
		var sharer *Socket
		if len(g.sockets) > 0 {
			sharer = g.sockets[0]
		}
		s, err := u.attempt(cfg, sharer, mode)
		switch {
		case err == nil:
			g.sockets = append(g.sockets, s)
			u.inUse++
			return s, nil
		case sharer == nil || !errors.Is(err, unix.EBADF):
			return nil, err
		}
		// The sharer's interface is gone and the kernel has unbound it.
		g.sockets = slices.Delete(g.sockets, 0, 1)
	}
}

// forget takes s out of its group; u.mu is held.
func (u *Umem) forget(s *Socket) {
	for _, g := range []*group{&u.copy, &u.zero} {
		if i := slices.Index(g.sockets, s); i >= 0 {
			g.sockets = slices.Delete(g.sockets, i, i+1)
		}
	}
}

// attempt opens, maps and binds one socket, once.
func (u *Umem) attempt(cfg *SocketConfig, sharer *Socket, mode uint16) (*Socket, error) {
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, &stepError{"open AF_XDP socket", err}
	}
	s := &Socket{fd: uintptr(fd), umem: u, cfg: *cfg}
	if err := s.setup(sharer, mode); err != nil {
		return nil, errors.Join(err, s.release())
	}
	return s, nil
}

// setup does all of Open's system calls but the first.
func (s *Socket) setup(sharer *Socket, mode uint16) error {
	u, fd := s.umem, s.FD()
	if sharer == nil {
		reg := unix.XDPUmemReg{
			Addr: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(u.area)))),
			Len:  uint64(len(u.area)),
			Size: uint32(u.cfg.Chunk()),
		}
		if err := setsockopt(fd, unix.XDP_UMEM_REG, unsafe.Pointer(&reg), unsafe.Sizeof(reg)); err != nil {
			return &stepError{fmt.Sprintf("register UMEM of %d frames of %d bytes", u.cfg.Frames, u.cfg.FrameSize), err}
		}
	}
	if err := s.mapRings(); err != nil {
		return err
	}
	s.raiseBudget()
	s.raiseSendBuffer()
	addr := unix.SockaddrXDP{
		Flags:   mode | unix.XDP_USE_NEED_WAKEUP,
		Ifindex: uint32(s.cfg.Ifindex),
		QueueID: uint32(s.cfg.Queue),
	}
	if u.cfg.Spread() {
		addr.Flags |= unix.XDP_USE_SG
	}
	if sharer != nil {
		// Alone: the other flags are inherited, and refused beside it.
		addr.Flags = unix.XDP_SHARED_UMEM
		addr.SharedUmemFD = uint32(sharer.FD())
	}
	if err := unix.Bind(fd, &addr); err != nil {
		return &stepError{"bind", err}
	}
	// A ring that is bound with need_wakeup starts with its TX flag set. In
	// some kernels a sharer does not inherit need_wakeup; its flag stays
	// clear then, and waiting for it would mean never to send.
	s.needWakeup = s.tx.needWakeup()
	options, err := unix.GetsockoptInt(fd, unix.SOL_XDP, unix.XDP_OPTIONS)
	if err != nil {
		return &stepError{"read XDP_OPTIONS", err}
	}
	s.zeroCopy = options&unix.XDP_OPTIONS_ZEROCOPY != 0
	return nil
}

// raiseBudget lets one system call send more than 32 frames in copy mode.
// Kernels before 6.17 refuse, and then Kick makes more calls.
func (s *Socket) raiseBudget() {
	s.noteBudget(kernelBudget)
	_ = s.setBudget(min(wantBudget, s.cfg.TX))
}

// setBudget sets XDP_MAX_TX_SKB_BUDGET; the kernel takes no less than 32 and no
// more than the TX ring holds.
func (s *Socket) setBudget(frames int) error {
	if err := unix.SetsockoptInt(s.FD(), unix.SOL_XDP, unix.XDP_MAX_TX_SKB_BUDGET, frames); err != nil {
		return err
	}
	s.noteBudget(frames)
	return nil
}

// noteBudget sets how often Kick repeats a system call that sends so many frames.
func (s *Socket) noteBudget(frames int) {
	s.budget = frames
	s.kickLimit = s.cfg.TX/frames + 1 + fruitlessKicks
}

// frameOverhead is more than what the kernel adds to a frame's bytes when it
// accounts for a copy of it (struct sk_buff and struct skb_shared_info).
const frameOverhead = 1024

// raiseSendBuffer lets copies of a whole TX ring be in flight: they count as
// the socket's send buffer until the device is done with them, and by default
// that is full after less than a hundred long frames. Without CAP_NET_ADMIN the
// kernel refuses; then Kick says KickAgain earlier.
func (s *Socket) raiseSendBuffer() {
	_ = unix.SetsockoptInt(s.FD(), unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, s.cfg.TX*(s.umem.cfg.FrameSize+frameOverhead))
}

// mapRings sizes the four rings, maps them and lays the ring types over them.
func (s *Socket) mapRings() error {
	fd := s.FD()
	sizes := [4]int{ringRX: s.cfg.RX, ringTX: s.cfg.TX, ringFill: s.cfg.Fill, ringCompletion: s.cfg.Completion}
	for i, r := range rings {
		if err := unix.SetsockoptInt(fd, unix.SOL_XDP, r.option, sizes[i]); err != nil {
			return &stepError{fmt.Sprintf("make %s ring of %d entries", r.name, sizes[i]), err}
		}
	}
	return s.layRings()
}

// layRings maps the rings that the socket has, of the sizes in its configuration, and
// lays the ring types over them.
func (s *Socket) layRings() error {
	fd := s.FD()
	sizes := [4]int{ringRX: s.cfg.RX, ringTX: s.cfg.TX, ringFill: s.cfg.Fill, ringCompletion: s.cfg.Completion}
	var off unix.XDPMmapOffsets
	if err := getsockopt(fd, unix.XDP_MMAP_OFFSETS, unsafe.Pointer(&off), unsafe.Sizeof(off)); err != nil {
		return &stepError{"read ring offsets", err}
	}
	for i, at := range [4]*unix.XDPRingOffset{&off.Rx, &off.Tx, &off.Fr, &off.Cr} {
		r := &rings[i]
		length := int(at.Desc) + sizes[i]*int(r.slot)
		m, err := unix.Mmap(fd, r.page, length, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
		if err != nil {
			return &stepError{fmt.Sprintf("map %s ring of %d entries", r.name, sizes[i]), err}
		}
		s.maps[i] = m
	}
	s.rx.ring = layRing[Desc](s.maps[ringRX], &off.Rx, s.cfg.RX)
	s.tx.ring = layRing[Desc](s.maps[ringTX], &off.Tx, s.cfg.TX)
	s.fill.ring = layRing[uint64](s.maps[ringFill], &off.Fr, s.cfg.Fill)
	s.completion.ring = layRing[uint64](s.maps[ringCompletion], &off.Cr, s.cfg.Completion)
	return nil
}

// layRing lays a ring of n slots over memory that the kernel mapped.
func layRing[T any](m []byte, off *unix.XDPRingOffset, n int) ring[T] {
	word := func(at uint64) *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&m[at])) }
	slots := unsafe.Slice((*T)(unsafe.Pointer(&m[off.Desc])), n)
	return newRing(word(off.Producer), word(off.Consumer), word(off.Flags), slots)
}

// holds reports whether a bound socket of the area has the queue. An interface
// that was deleted may have left its index to a new one, so what counts is
// whether the kernel still has the socket bound.
func (u *Umem) holds(ifindex, queue int) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, g := range []*group{&u.copy, &u.zero} {
		for _, s := range g.sockets {
			if s.cfg.Ifindex == ifindex && s.cfg.Queue == queue && s.poke() != unix.ENXIO {
				return true
			}
		}
	}
	return false
}

// remedy says what an operator can do about an error of Open.
func (u *Umem) remedy(cfg *SocketConfig, err error) string {
	busy := errors.Is(err, unix.EBUSY)
	switch {
	case (busy || errors.Is(err, unix.EINVAL)) && u.holds(cfg.Ifindex, cfg.Queue):
		// Sharing with a socket on the same queue is EINVAL, as each
		// brings its own fill and completion ring.
		return "this UMEM has a socket on that queue: close it first"
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return "run as root or with CAP_NET_RAW and CAP_NET_ADMIN"
	case errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.ENOMEM):
		return "raise the limit of locked memory (ulimit -l, LimitMEMLOCK=infinity in the unit), grant CAP_IPC_LOCK, or use fewer frames"
	case busy:
		return fmt.Sprintf("another process owns queue %d of %s: stop it, or use another queue; "+
			"or the other end of a veth pair keeps packets that were sent to it: see what stands in its queues (tc -s qdisc), or make the pair anew", cfg.Queue, cfg.Name)
	case errors.Is(err, unix.ENODEV):
		return "the interface does not exist in this network namespace"
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOENT): // virtio-net on a bus that cannot reset a queue
		return "the driver cannot do this: use copy mode"
	case errors.Is(err, unix.EAFNOSUPPORT):
		return "the kernel was built without AF_XDP: CONFIG_XDP_SOCKETS is needed"
	case errors.Is(err, unix.ENETDOWN):
		return "set the interface up"
	case errors.Is(err, unix.EINVAL) && u.cfg.Spread():
		return fmt.Sprintf("packets of more than %d bytes need Linux 6.6: set smaller MTUs on all ports with an older one; or the interface has no queue %d: see `ethtool -l %s`",
			u.cfg.Chunk()-Headroom, cfg.Queue, cfg.Name)
	case errors.Is(err, unix.EINVAL):
		return fmt.Sprintf("the interface may have no queue %d: see `ethtool -l %s`", cfg.Queue, cfg.Name)
	}
	return "see the kernel log"
}

// setsockopt sets an option of level SOL_XDP.
func setsockopt(fd, option int, value unsafe.Pointer, length uintptr) error {
	_, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_XDP, uintptr(option), uintptr(value), length, 0)
	runtime.KeepAlive(value)
	if errno != 0 {
		return errno
	}
	return nil
}

// getsockopt reads an option of level SOL_XDP. A kernel that knows less than
// length bytes of it leaves the rest as it is.
func getsockopt(fd, option int, value unsafe.Pointer, length uintptr) error {
	n := uint32(length)
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_XDP, uintptr(option), uintptr(value), uintptr(unsafe.Pointer(&n)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
