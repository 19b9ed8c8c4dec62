package bpf

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// Program is the loaded classifier of one port. Any goroutine may call Counters
// until Close; only one at a time may call the other methods.
type Program struct {
	cfg      Config
	prog     *ebpf.Program
	sockets  *ebpf.Map // XSKMAP: AF_XDP socket by queue
	counters *ebpf.Map // per CPU, by verdict
	vlans    *ebpf.Map // access with a rule; nil otherwise
	bound    []VLAN    // what vlans holds, by VLAN identifier
	tags     bool      // it reads VLAN tags that the driver took off
	blind    bool      // it would have to, and does not
	link     link.Link // nil when not attached, or closed
	mode     Mode      // how it is attached

	// Of a closed port.
	claim   net.Listener // nil when not attached
	claimed int          // interface
}

// name returns the program's name, which the kernel shows on the interface.
func (c *Config) name() string { return "loom_" + c.Kind.String() }

// Is reports whether the program has an ID of the kernel's.
func (p *Program) Is(id uint32) bool {
	if p.prog == nil {
		return false
	}
	info, err := p.prog.Info()
	if err != nil {
		return false
	}
	have, ok := info.ID()
	return ok && uint32(have) == id
}

// ReadsTags reports whether the program sees VLAN tags that the driver took off.
func (p *Program) ReadsTags() bool { return p.tags }

// Blind reports whether the driver takes VLAN tags off frames of which the program does not
// see that they had one.
func (p *Program) Blind() bool { return p.blind }

// Load verifies and loads the program for cfg. The caller closes it. Errors name the
// kind of port. Without the privileges the error matches [os.ErrPermission].
func Load(cfg Config) (*Program, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("XDP program of %v port: %w", cfg.Kind, err)
	}
	tags, err := cfg.tellsTags()
	if err != nil {
		return nil, fmt.Errorf("load XDP program %s: %w", cfg.name(), err)
	}
	p, err := load(cfg, tags && !blinds())
	if tags && (errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, errGrown)) { // no BTF, or no JIT
		p, err = load(cfg, false)
	}
	if p != nil {
		p.blind = tags && !p.tags
	}
	if errors.Is(err, os.ErrPermission) {
		return nil, fmt.Errorf("load XDP program %s: %w (needs root, or CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW)", cfg.name(), err)
	}
	if err != nil {
		return nil, fmt.Errorf("load XDP program %s: %w", cfg.name(), err)
	}
	return p, nil
}

// tellsTags reports whether the program can learn of tags from the driver.
func (c *Config) tellsTags() (bool, error) {
	if c.Device == 0 {
		return false, nil
	}
	return TellsTags(c.Device)
}

func load(cfg Config, tags bool) (*Program, error) {
	// Kernels before 5.11 charge maps to RLIMIT_MEMLOCK; newer ones do not
	// and the call does nothing.
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("raise RLIMIT_MEMLOCK: %w", err)
	}
	spec, err := loadLoom()
	if err != nil {
		return nil, fmt.Errorf("read embedded object: %w", err)
	}
	if err := specialise(spec, &cfg, tags); err != nil {
		return nil, err
	}
	shared := make(map[string]*ebpf.Map)
	if cfg.Rule != nil {
		maps.Copy(shared, cfg.Rule.maps(cfg.Kind))
	} else {
		maps.Copy(shared, cfg.Routes.maps())
	}
	if cfg.Fast != nil {
		maps.Copy(shared, cfg.Fast.maps)
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: shared})
	if err != nil {
		return nil, err
	}
	defer coll.Close() // closes what was not detached from it
	if tags {
		if err := stayed(coll.Programs[cfg.name()], spec.Programs[cfg.name()]); err != nil {
			return nil, err
		}
	}
	p := &Program{
		cfg:      cfg,
		prog:     coll.DetachProgram(cfg.name()),
		sockets:  coll.DetachMap("xsks"),
		counters: coll.DetachMap("counters"),
		vlans:    coll.DetachMap("vlans"),
		tags:     tags,
	}
	return p, nil
}

// section returns the name of the program's function in loom.c.
func (c *Config) section(tags bool) string {
	name := c.name()
	if c.Rule != nil {
		name = "loom_kernel_" + c.Kind.String()
	}
	if c.Fast != nil {
		name += "_fast"
	}
	if tags {
		name += "_tags"
	}
	return name
}

// specialise removes the programs and maps that cfg's kind of port does not need,
// and sets constants and sizes. With tags, the program is bound to its device.
func specialise(spec *ebpf.CollectionSpec, cfg *Config, tags bool) error {
	p := spec.Programs[cfg.section(tags)]
	p.Name = cfg.name()
	if tags {
		p.Ifindex, p.Flags = uint32(cfg.Device), unix.BPF_F_XDP_DEV_BOUND_ONLY
		p.Instructions = withRoom(p.Instructions)
	}
	if cfg.MultiBuffer {
		p.Flags |= unix.BPF_F_XDP_HAS_FRAGS
	}
	spec.Programs = map[string]*ebpf.ProgramSpec{cfg.name(): p}
	if cfg.Kind == Spine {
		spec.Maps["remotes"].MaxEntries, spec.Maps["remotes6"].MaxEntries = maxRoutes, maxRoutes
	} else {
		delete(spec.Maps, "remotes")
		delete(spec.Maps, "remotes6")
	}
	if cfg.Kind != Access || cfg.Rule != nil {
		delete(spec.Maps, "link_local")
	}
	if cfg.Kind != Access || cfg.Rule == nil {
		delete(spec.Maps, "vlans")
	}
	shared := cfg.Rule.maps(cfg.Kind)
	for _, name := range ruleMaps {
		if m := shared[name]; m != nil {
			spec.Maps[name].MaxEntries = m.MaxEntries()
		} else {
			delete(spec.Maps, name)
		}
	}
	spec.Maps["xsks"].MaxEntries = uint32(cfg.Queues)
	if err := specialiseFast(spec, cfg); err != nil {
		return err
	}

	consts := map[string]any{
		"vxlan_port": cfg.VXLANPort,
		"hash_seed":  cfg.Seed,
		"vtep_addr":  uint32(0),
		"vtep_addr6": [4]uint32{},
		"no_socket":  uint32(xdpPass),

		"port_number":  uint32(cfg.Port),
		"multi_buffer": uint32(0),
	}
	if cfg.MultiBuffer {
		consts["multi_buffer"] = uint32(1)
	}
	if cfg.Closed {
		consts["no_socket"] = uint32(xdpDrop)
	}
	switch {
	case cfg.Kind != Uplink:
	case cfg.VTEP.Is4():
		consts["vtep_addr"] = beAddr(cfg.VTEP)
	default:
		consts["vtep_addr6"] = beAddr6(cfg.VTEP)
	}
	return setConstants(spec, consts)
}

// setConstants sets constants of the object.
func setConstants(spec *ebpf.CollectionSpec, consts map[string]any) error {
	for name, value := range consts {
		v, ok := spec.Variables[name]
		if !ok {
			return fmt.Errorf("embedded object has no constant %q: run go generate", name)
		}
		if err := v.Set(value); err != nil {
			return fmt.Errorf("set constant %q: %w", name, err)
		}
	}
	return nil
}

// SetSocket makes the AF_XDP socket fd receive the frames of queue. The socket must
// be bound to that queue of the interface: the kernel accepts any socket, and drops
// the frames of a wrong one. Closing the socket removes it.
func (p *Program) SetSocket(queue int, fd int) error {
	if p.sockets == nil {
		return fmt.Errorf("queue %d of %s: %w", queue, p.cfg.name(), os.ErrClosed)
	}
	if queue < 0 || queue >= p.cfg.Queues {
		return fmt.Errorf("queue %d of %s: it was loaded for %d queues", queue, p.cfg.name(), p.cfg.Queues)
	}
	if err := p.sockets.Put(uint32(queue), uint32(fd)); err != nil {
		return fmt.Errorf("give queue %d of %s to socket %d: %w", queue, p.cfg.name(), fd, err)
	}
	return nil
}

// ClearSockets takes the sockets of all queues away. What comes from then on is the
// kernel's, or is dropped on a closed access port, as if the daemon had ended; what the
// sockets have received can still be read.
func (p *Program) ClearSockets() error {
	if p.sockets == nil {
		return fmt.Errorf("sockets of %s: %w", p.cfg.name(), os.ErrClosed)
	}
	for queue := range p.cfg.Queues {
		if err := p.sockets.Delete(uint32(queue)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("take queue %d of %s from its socket: %w", queue, p.cfg.name(), err)
		}
	}
	return nil
}

// Counters returns how many frames met each verdict since Load, by the verdict's
// name. Each frame counts once.
func (p *Program) Counters() (map[string]uint64, error) {
	if p.counters == nil {
		return nil, fmt.Errorf("read counters of %s: %w", p.cfg.name(), os.ErrClosed)
	}
	sums := make(map[string]uint64, len(verdictNames))
	var perCPU []uint64
	for v, name := range verdictNames {
		if err := p.counters.Lookup(uint32(v), &perCPU); err != nil {
			return nil, fmt.Errorf("read counter %q of %s: %w", name, p.cfg.name(), err)
		}
		for _, n := range perCPU {
			sums[name] += n
		}
	}
	return sums, nil
}

// Close detaches the program, but for that of a closed port, and frees its maps.
// Closing twice is harmless.
func (p *Program) Close() error {
	var err error
	if p.claim != nil {
		err = p.release()
	} else {
		err = p.Detach()
	}
	if p.prog != nil {
		err = errors.Join(err, p.prog.Close())
		p.prog = nil
	}
	for _, m := range []**ebpf.Map{&p.sockets, &p.counters, &p.vlans} {
		if *m != nil {
			err = errors.Join(err, (*m).Close())
			*m = nil
		}
	}
	return err
}
