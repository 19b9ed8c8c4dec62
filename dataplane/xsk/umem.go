package xsk

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Headroom is the free space before a received packet in its frame
// (XDP_PACKET_HEADROOM), in bytes. Encapsulation puts its headers there. The XDP
// program's metadata lies at its end.
const Headroom = unix.XDP_PACKET_HEADROOM

// UmemConfig describes a packet area.
type UmemConfig struct {
	Frames    int // number of frames, at least 1
	FrameSize int // bytes a frame: 2048, 4096 or LongFrame
}

// LongFrame is the size of frames that hold packets of more than a page, bytes. The kernel
// takes and gives such packets in parts of a page each: see [UmemConfig.Spread].
const LongFrame = 16384

// Chunk returns the size of the pieces that the kernel divides the area in, bytes: a frame,
// or a page if that is less. A descriptor lies within one.
func (c UmemConfig) Chunk() int { return min(c.FrameSize, os.Getpagesize()) }

// Spread reports whether one packet can be of several descriptors (XDP_USE_SG, Linux 6.6). Of
// these all but the last have [More] set. Received parts come in frames of their own, each
// behind its headroom. Parts to be transmitted are pieces of one frame, each within a chunk.
func (c UmemConfig) Spread() bool { return c.FrameSize > c.Chunk() }

// Validate reports the first field that the kernel would refuse.
func (c UmemConfig) Validate() error {
	switch {
	case c.Frames < 1:
		return fmt.Errorf("xsk: UmemConfig.Frames is %d: at least 1 is needed", c.Frames)
	case c.FrameSize != 2048 && c.FrameSize != 4096 && c.FrameSize != LongFrame:
		return fmt.Errorf("xsk: UmemConfig.FrameSize is %d: use 2048, 4096 or %d", c.FrameSize, LongFrame)
	case uint64(c.Frames) > maxArea/uint64(c.FrameSize):
		return fmt.Errorf("xsk: UmemConfig.Frames is %d: at most %d of %d bytes", c.Frames, maxArea/uint64(c.FrameSize), c.FrameSize)
	}
	return nil
}

// maxArea bounds the area at 16 GiB: the kernel counts its pages in 32 bits and
// pins every one, so anything larger is a mistake in a config.
const maxArea = 16 << 30

// group is the set of sockets that share one of the kernel's UMEM objects.
type group struct{ sockets []*Socket }

// Umem is a packet area that the sockets of many interfaces share. The kernel keeps
// all sharers of one of its UMEM objects in the copy mode of the first. So the area
// is registered up to twice, once for the zero-copy sockets and once for the
// others; it then counts twice against the limit of locked memory. Addresses mean
// the same in both, and a frame may go from any socket to any other.
//
// Opening and closing sockets is safe for concurrent use. The contents of the area
// belong to the owners of the frames (see [Pool]).
//
// The area is a memfd, so that another process can map the same memory and go on with
// its sockets: see [AdoptUmem].
type Umem struct {
	cfg    UmemConfig
	area   []byte
	memory int // the memfd; -1: closed

	mu    sync.Mutex
	copy  group
	zero  group
	inUse int // sockets not yet closed, bound or not
}

// NewUmem maps a packet area. Memory is pinned, and counted against the limit
// of locked memory, only when the first socket registers it.
func NewUmem(cfg UmemConfig) (*Umem, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("loom-umem", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("xsk: make a memory file for %d frames of %d bytes: %w", cfg.Frames, cfg.FrameSize, err)
	}
	if err := unix.Ftruncate(fd, int64(cfg.size())); err != nil {
		return nil, errors.Join(fmt.Errorf("xsk: make room for %d frames of %d bytes: %w; reduce the number of frames", cfg.Frames, cfg.FrameSize, err), unix.Close(fd))
	}
	// A file that got shorter would kill whoever reads what is gone.
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, sizeSeals); err != nil {
		return nil, errors.Join(fmt.Errorf("xsk: seal the size of the packet area: %w", err), unix.Close(fd))
	}
	return mapUmem(cfg, fd)
}

// sizeSeals keep a memfd at its size, for good.
const sizeSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// mapUmem maps the memfd of an area, which it closes if it fails.
func mapUmem(cfg UmemConfig, fd int) (*Umem, error) {
	area, err := unix.Mmap(fd, 0, cfg.size(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("xsk: map %d frames of %d bytes: %w; reduce the number of frames", cfg.Frames, cfg.FrameSize, err), unix.Close(fd))
	}
	// Huge pages make for fewer TLB misses. It is a hint: kernels without
	// them refuse it, others have it off for shared memory (shmem_enabled), and
	// nothing depends on it.
	if err := unix.Madvise(area, unix.MADV_HUGEPAGE); err != nil && !errors.Is(err, unix.EINVAL) {
		return nil, errors.Join(fmt.Errorf("xsk: advise huge pages: %w", err), unix.Munmap(area), unix.Close(fd))
	}
	return &Umem{cfg: cfg, area: area, memory: fd}, nil
}

// size returns the area's length in bytes.
func (c UmemConfig) size() int { return c.Frames * c.FrameSize }

// Area returns the packet area. It must not be used after Close.
func (u *Umem) Area() []byte { return u.area }

// Close unmaps the area. It fails, and changes nothing, while sockets are open.
// Closing twice is harmless.
func (u *Umem) Close() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.inUse > 0 {
		return fmt.Errorf("xsk: close UMEM: %d sockets are open on it; close them first", u.inUse)
	}
	if u.area == nil {
		return nil
	}
	area := u.area
	u.area = nil
	fd := u.memory
	u.memory = -1
	if err := errors.Join(unix.Munmap(area), unix.Close(fd)); err != nil {
		return fmt.Errorf("xsk: unmap %d bytes of UMEM: %w", len(area), err)
	}
	return nil
}
