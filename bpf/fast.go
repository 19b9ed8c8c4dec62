package bpf

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// Fast holds the tables of a node's fast path (decisions 0033 and 0034): those by which the XDP
// programs of its ports forward frames themselves, see [Config.Fast]. The tables are memory
// that this process and the programs have in common. A word of 8 bytes has one writer.
// What is larger has two copies, of which one is in force.
//
// Reading counters is for any goroutine, until Close. A ring's Drain is for the worker of
// that ring, everything else for one goroutine at a time.
type Fast struct {
	size   FastSize
	cpus   int
	mark   uint64 // of the numbers of frames
	maps   map[string]*ebpf.Map
	mapped [][]byte
	routes [FastCopies]map[netip.Prefix]uint32 // what the copies' routes say

	ctl    *loomFastCtl
	ports  []FastPort
	hops   []FastHop
	groups []FastGroup
	moved  []loomFastTraffic
	leaf   leafTables
	access accessTables

	marked []loomFastTraffic

	ce, chance, drained, out, known, sent, raised, slow, lost, losing []uint64

	probes  []link.Link // count what drivers do not take
	netns   uint64
	devices map[int]uint32 // interface by port: what the programs' tables have
}

// FastSize says how much a [Fast] has room for.
type FastSize struct {
	Ports  int // of the node
	Queues int // of each port
	Hops   int // a spine's: next hops of a copy; those with higher numbers are user space's
	Groups int // a spine's: sets of next hops of a copy, likewise
	FDB    int // a leaf's: bytes of each worker's table of addresses (overlay.FDBMemory)

	TopMetric uint8 // a leaf's: the largest congestion metric that there is
}

// FastCopies is how many copies of the tables there are.
const FastCopies = 2

// FastBuckets is how many buckets of flows a ring has, FAST_BUCKETS in fast.h.
const FastBuckets = 4096

// fastKnown is FAST_KNOWN in fast.h.
const fastKnown = 1024

// fastNumberBits is FAST_NUMBER_BITS in fast.h.
const fastNumberBits = 48

// fastSlowNames are the names of enum fast_slow (fast.h), in its order. They are label
// values of a metric: add, never rename.
var fastSlowNames = [...]string{
	"off",        // the tables are not in force, or not for this port
	"stale",      // user space has not said for long that it lives
	"odd",        // not plain VXLAN with data that is to be forwarded
	"unbelieved", // the source is not reached by this port
	"no_route",   // no next hop that the program knows
	"hop",        // the next hop has to be resolved, or its port needs a queue, or the frame is too long
	"spread",     // a next hop is gone, and the others have different weights
	"order",      // frames of its flow are still in user space

	"network",     // its network is not known, or not open to its sender
	"source",      // its source address is not known to live there
	"destination", // it is not known where it goes, or it goes to several places
	"scheme",      // the scheme of its class sees each frame
}

// FastSlowNames returns the names of the reasons for which frames go to user space, in the
// order of [Fast.Slow].
func FastSlowNames() []string { return fastSlowNames[:] }

// FastPort is a port in a copy of the tables, as fast.h lays it out.
type FastPort = loomFastPort

// FastHop is a next hop in a copy of the tables, as fast.h lays it out.
type FastHop = loomFastHop

// FastGroup is a set of next hops in a copy of the tables, as fast.h lays it out.
type FastGroup = loomFastGroup

// FastByHash is the selector of a [FastGroup] that leaves the choice to the hash.
const FastByHash = 0xff

// fastOurs marks a route to the fabric's own.
const fastOurs = 1 << 31

// FastRoute returns the value of a route of [Fast.SetRoutes]: an index of the copy's groups,
// and whether VXLAN to there is the fabric's.
func FastRoute(group uint32, ours bool) uint32 {
	v := group + 1
	if ours {
		v |= fastOurs
	}
	return v
}

// OpenFast makes empty tables, which are not in force, and begins to count what drivers do
// not take. The caller closes them. Errors say what the kernel lacks.
func OpenFast(size FastSize) (f *Fast, err error) {
	if err := size.check(); err != nil {
		return nil, err
	}
	if err := rlimit.RemoveMemlock(); err != nil { // as in load
		return nil, fmt.Errorf("raise RLIMIT_MEMLOCK: %w", err)
	}
	f = &Fast{size: size, mark: uint64(1 + rand.N(1<<16-1)), maps: make(map[string]*ebpf.Map), devices: make(map[int]uint32)}
	for i := range f.routes {
		f.routes[i] = make(map[netip.Prefix]uint32)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
			f = nil
		}
	}()
	if f.cpus, err = ebpf.PossibleCPU(); err != nil {
		return f, fmt.Errorf("count the CPUs: %w", err)
	}
	if f.netns, err = netnsCookie(); err != nil {
		return f, err
	}
	spec, err := loadLoom()
	if err != nil {
		return f, fmt.Errorf("read embedded object: %w", err)
	}
	if err := f.openMaps(spec); err != nil {
		return f, err
	}
	return f, f.openProbes(spec)
}

// netnsCookie returns what the kernel knows the network namespace of the calling thread by.
func netnsCookie() (uint64, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("socket: %w", err)
	}
	defer unix.Close(fd)
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return 0, fmt.Errorf("cookie of the network namespace (since Linux 5.14): %w", err)
	}
	return cookie, nil
}

// isFast reports whether a map of the object is one of the fast path's.
func isFast(name string) bool { return strings.HasPrefix(name, "fast_") }

func (f *Fast) openMaps(spec *ebpf.CollectionSpec) error {
	s := &f.size
	rings := s.Ports * s.Queues
	entries := map[string]int{
		"fast_ctl": 1, "fast_ports": FastCopies * s.Ports, "fast_ce": s.Ports, "fast_chance": s.Ports, "fast_marked": f.cpus * s.Ports, "fast_drained": rings, "fast_seq": rings, "fast_flows": rings * FastBuckets,
		"fast_sent": f.cpus * s.Ports, "fast_raised": f.cpus * s.Ports, "fast_slow": f.cpus * s.Ports * len(fastSlowNames),
		"fast_losing": s.Ports, "fast_lost": f.cpus * s.Ports * s.Ports, "fast_out": s.Ports, "fast_devices": 2 * s.Ports,
	}
	if s.isLeaf() {
		maps.Copy(entries, s.leafEntries(f.cpus))
		maps.Copy(entries, s.accessEntries(f.cpus))
	} else {
		maps.Copy(entries, map[string]int{
			"fast_hops": FastCopies * s.Hops, "fast_groups": FastCopies * s.Groups, "fast_known": FastCopies * fastKnown,
			"fast_moved": f.cpus * s.Ports * s.Hops, "fast_routes0": maxRoutes, "fast_routes1": maxRoutes,
		})
	}
	for name, n := range entries {
		m, ok := spec.Maps[name]
		if !ok {
			return fmt.Errorf("embedded object has no map %q: run go generate", name)
		}
		m = m.Copy()
		m.MaxEntries = uint32(n)
		made, err := ebpf.NewMap(m)
		if err != nil {
			return fmt.Errorf("make the map %s of %d entries: %w", name, n, err)
		}
		f.maps[name] = made
	}
	return f.mapAll()
}

// mapAll makes the tables memory of this process.
func (f *Fast) mapAll() error {
	ctl, err := mapped[loomFastCtl](f, "fast_ctl")
	if err != nil {
		return err
	}
	f.ctl = &ctl[0]
	if f.ports, err = mapped[FastPort](f, "fast_ports"); err != nil {
		return err
	}
	for name, to := range map[string]*[]uint64{
		"fast_ce": &f.ce, "fast_chance": &f.chance, "fast_drained": &f.drained, "fast_out": &f.out, "fast_sent": &f.sent, "fast_raised": &f.raised, "fast_slow": &f.slow, "fast_lost": &f.lost, "fast_losing": &f.losing,
	} {
		if *to, err = mapped[uint64](f, name); err != nil {
			return err
		}
	}
	if f.marked, err = mapped[loomFastTraffic](f, "fast_marked"); err != nil {
		return err
	}
	if f.size.isLeaf() {
		return f.mapLeaf()
	}
	if f.hops, err = mapped[FastHop](f, "fast_hops"); err != nil {
		return err
	}
	if f.groups, err = mapped[FastGroup](f, "fast_groups"); err != nil {
		return err
	}
	if f.moved, err = mapped[loomFastTraffic](f, "fast_moved"); err != nil {
		return err
	}
	f.known, err = mapped[uint64](f, "fast_known")
	return err
}

// mapped returns the memory of a map.
func mapped[T any](f *Fast, name string) ([]T, error) {
	m := f.maps[name]
	var row T
	if int(m.ValueSize()) != int(unsafe.Sizeof(row)) {
		return nil, fmt.Errorf("map %s has rows of %d bytes, and %T has %d: run go generate", name, m.ValueSize(), row, unsafe.Sizeof(row))
	}
	n, page := int(m.MaxEntries()), os.Getpagesize()
	bytes := (n*int(unsafe.Sizeof(row)) + page - 1) / page * page
	b, err := unix.Mmap(m.FD(), 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s of %d bytes into memory (since Linux 5.5): %w", name, bytes, err)
	}
	f.mapped = append(f.mapped, b)
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), n), nil
}

// fastProbes are the programs that count what drivers do not take, by the kernel's accounts.
var fastProbes = [...]string{"loom_fast_lost", "loom_fast_refused"}

// openProbes begins to count what drivers do not take.
func (f *Fast) openProbes(spec *ebpf.CollectionSpec) error {
	spec = spec.Copy()
	programs := make(map[string]*ebpf.ProgramSpec)
	for _, name := range fastProbes {
		programs[name] = spec.Programs[name]
	}
	spec.Programs = programs
	for m := range spec.Maps {
		if f.maps[m] == nil && !strings.HasPrefix(m, ".") {
			delete(spec.Maps, m)
		}
	}
	if err := f.setConstants(spec); err != nil {
		return err
	}
	f.sized(spec)
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: f.maps})
	if err != nil {
		return fmt.Errorf("load the programs that count what drivers do not take (they need BTF of the kernel, and CAP_PERFMON): %w", err)
	}
	defer c.Close()
	for _, name := range fastProbes {
		l, err := link.AttachTracing(link.TracingOptions{Program: c.Programs[name]})
		if err != nil {
			return fmt.Errorf("attach %s to its tracepoint: %w", name, err)
		}
		f.probes = append(f.probes, l)
	}
	return nil
}

// sized gives the maps of an object the sizes of those that take their places, and removes
// those of the other role.
func (f *Fast) sized(spec *ebpf.CollectionSpec) {
	for name := range spec.Maps {
		if m := f.maps[name]; m != nil {
			spec.Maps[name].MaxEntries = m.MaxEntries()
		} else if isFast(name) {
			delete(spec.Maps, name)
		}
	}
}

// setConstants writes the sizes into an object.
func (f *Fast) setConstants(spec *ebpf.CollectionSpec) error {
	return setConstants(spec, map[string]any{
		"fast_port_count": uint32(f.size.Ports), "fast_hop_count": uint32(f.size.Hops), "fast_group_count": uint32(f.size.Groups), "fast_mark": f.mark,
		"fast_fdb_mask": uint32(max(f.size.buckets()-2, 0)), "fast_top_metric": uint32(f.size.TopMetric),
	})
}

// Close frees the tables, once no program uses them any more. Closing twice is harmless.
func (f *Fast) Close() error {
	var errs []error
	for _, l := range f.probes {
		errs = append(errs, l.Close())
	}
	f.probes = nil
	for _, b := range f.mapped {
		errs = append(errs, unix.Munmap(b))
	}
	f.mapped = nil
	for _, m := range f.maps {
		errs = append(errs, m.Close())
	}
	clear(f.maps)
	return errors.Join(errs...)
}

// Size returns what there is room for.
func (f *Fast) Size() FastSize { return f.size }

// Copy returns the rows of a copy of the tables. They are the caller's to write while the
// other copy is in force, after [Grace].
func (f *Fast) Copy(i int) (ports []FastPort, hops []FastHop, groups []FastGroup) {
	s := &f.size
	return f.ports[i*s.Ports:][:s.Ports], f.hops[i*s.Hops:][:s.Hops], f.groups[i*s.Groups:][:s.Groups]
}

// SetRoutes makes the routes of a copy that is not in force those of want, values of
// [FastRoute] by prefix. Prefixes that are not IPv4 are left out.
func (f *Fast) SetRoutes(i int, want map[netip.Prefix]uint32) error {
	trie, has := f.maps[fmt.Sprintf("fast_routes%d", i)], f.routes[i]
	for p, v := range want {
		if was, ok := has[p]; ok && was == v || !p.Addr().Is4() {
			continue
		}
		if err := trie.Put(lpmKey(p), v); err != nil {
			return fmt.Errorf("put the route to %v into the fast path's table: %w", p, err)
		}
		has[p] = v
	}
	for p := range has {
		if _, ok := want[p]; ok {
			continue
		}
		if err := trie.Delete(lpmKey(p)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("drop the route to %v from the fast path's table: %w", p, err)
		}
		delete(has, p)
	}
	clear(f.known[i*fastKnown:][:fastKnown])
	return nil
}

// Use puts a copy of the tables in force, with its next packet.
func (f *Fast) Use(i int) { atomic.StoreUint64(&f.ctl.State, uint64(i)+1) }

// Off leaves all frames to user space, from the next one on.
func (f *Fast) Off() { atomic.StoreUint64(&f.ctl.State, 0) }

// InForce returns the copy that is in force; -1: none.
func (f *Fast) InForce() int { return int(atomic.LoadUint64(&f.ctl.State)) - 1 }

// SetDead sets how long after a beat the programs go on believing the tables, ns.
func (f *Fast) SetDead(ns uint64) { atomic.StoreUint64(&f.ctl.Dead, ns) }

// Beat says that user space lives, at a time of CLOCK_MONOTONIC, ns.
func (f *Fast) Beat(at uint64) { atomic.StoreUint64(&f.ctl.Beat, at) }

// SetCE has frames that leave by a port tell of its metric (CONGA §3.3, step 2); 0: of none.
func (f *Fast) SetCE(port int, metric uint8) { atomic.StoreUint64(&f.ce[port], uint64(metric)) }

// SetChance has frames that leave by a port be marked (ECN, RFC 3168) with a probability.
func (f *Fast) SetChance(port int, p float64) {
	atomic.StoreUint64(&f.chance[port], uint64(min(max(p, 0), 1)*(1<<32)))
}

// Marked returns the frames, and their bytes, that were marked as they left by a port.
func (f *Fast) Marked(port int) (frames, bytes uint64) {
	return f.traffic(f.marked, f.size.Ports, port)
}

// Ring returns the number of a ring: of a queue of a port.
func (f *Fast) Ring(port, queue int) int { return queue*f.size.Ports + port }

// Number returns the number of a frame in its ring from the word that a program wrote 8 bytes
// in front of the metadata; 0: that word is not one of these programs'.
func (f *Fast) Number(word uint64) uint64 {
	if word>>fastNumberBits != f.mark {
		return 0
	}
	return word & (1<<fastNumberBits - 1)
}

// Drain says that the frames of a ring up to a number have left user space.
func (f *Fast) Drain(ring int, number uint64) { atomic.StoreUint64(&f.drained[ring], number) }

// SetDevice makes an interface of the calling thread's network namespace the one that frames
// to a port leave by; 0: none.
func (f *Fast) SetDevice(port, ifindex int) error {
	old, had := f.devices[port]
	if had && old == uint32(ifindex) {
		return nil
	}
	devices := f.maps["fast_devices"]
	atomic.StoreUint64(&f.out[port], 0)
	if had {
		delete(f.devices, port)
		if err := devices.Delete(loomFastDevice{Netns: f.netns, Ifindex: old}); err != nil {
			return fmt.Errorf("take interface %d out of the fast path: %w", old, err)
		}
	}
	if ifindex == 0 {
		return nil
	}
	if err := devices.Put(loomFastDevice{Netns: f.netns, Ifindex: uint32(ifindex)}, uint32(port)); err != nil {
		return fmt.Errorf("have the fast path send by interface %d: %w", ifindex, err)
	}
	atomic.StoreUint64(&f.out[port], uint64(ifindex))
	f.devices[port] = uint32(ifindex)
	return nil
}

// Moved returns the frames, and their bytes, that came in by a port and were given to a
// next hop's driver.
func (f *Fast) Moved(port, hop int) (frames, bytes uint64) {
	for cpu := range f.cpus {
		m := &f.moved[(cpu*f.size.Ports+port)*f.size.Hops+hop]
		frames += atomic.LoadUint64(&m.Frames)
		bytes += atomic.LoadUint64(&m.Bytes)
	}
	return frames, bytes
}

// Lost returns how many of the frames that came in by a port and were to leave by another
// one the driver did not take.
func (f *Fast) Lost(in, out int) uint64 {
	return f.sum(f.lost, f.size.Ports*f.size.Ports, in*f.size.Ports+out)
}

// Losing returns a number that grows when a port's driver does not take frames.
func (f *Fast) Losing(port int) uint64 { return atomic.LoadUint64(&f.losing[port]) }

// Sent returns the bytes that were given to a port's driver.
func (f *Fast) Sent(port int) uint64 { return f.sum(f.sent, f.size.Ports, port) }

// Raised returns the frames whose CE was raised to a port's metric.
func (f *Fast) Raised(port int) uint64 { return f.sum(f.raised, f.size.Ports, port) }

// Slow returns how many frames of a port went to user space for a reason, of
// [FastSlowNames].
func (f *Fast) Slow(port, reason int) uint64 {
	n := len(fastSlowNames)
	return f.sum(f.slow, f.size.Ports*n, port*n+reason)
}

// sum adds up a word of all CPUs, of which each has a part of a size.
func (f *Fast) sum(words []uint64, part, at int) (sum uint64) {
	for cpu := range f.cpus {
		sum += atomic.LoadUint64(&words[cpu*part+at])
	}
	return sum
}

// Grace waits until no program runs any more that began before the call: so that a copy
// which was in force can be written.
func Grace() error {
	const global = 1 // MEMBARRIER_CMD_GLOBAL: it waits for a grace period of RCU
	if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0); errno != 0 {
		return fmt.Errorf("membarrier: %w", errno)
	}
	return nil
}

// specialiseFast removes the fast path's maps where there is none.
func specialiseFast(spec *ebpf.CollectionSpec, cfg *Config) error {
	f := cfg.Fast
	if f == nil {
		for name := range spec.Maps {
			if isFast(name) {
				delete(spec.Maps, name)
			}
		}
		return nil
	}
	f.sized(spec)
	anySource := uint32(0)
	if cfg.AnySource {
		anySource = 1
	}
	if err := setConstants(spec, map[string]any{"fast_any_source": anySource}); err != nil {
		return err
	}
	return f.setConstants(spec)
}
