package bpf

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync/atomic"
	"unsafe"
)

// leafTables are a leaf's tables of the fast path (bpf/fast_leaf.h).
type leafTables struct {
	copies  []FastLeaf
	vlans   []FastVLANs
	fdb     []loomFastBucket
	touched []uint64
	heard   []FastHeard
	entered []loomFastTraffic
	passed  []loomFastPassage
}

// FastLeaf is a copy of what a leaf's programs know of the fabric, as fast_leaf.h lays it
// out. The zero value knows nobody.
type FastLeaf = loomFastLeaf

// FastVLANs are the networks of a port by VLAN, index plus one, as fast_leaf.h lays them out.
type FastVLANs = loomFastVlans

// FastHeard is what one CPU has heard of a peer, as fast_leaf.h lays it out: see
// [Fast.Heard].
type FastHeard = loomFastHeard

// Numbers that fast_leaf.h has.
const (
	fastPeers    = MaxPeers
	fastNetworks = 4096
	fastAway     = 8
	fastTouched  = 256
	fastBucket   = int(unsafe.Sizeof(loomFastBucket{}))

	// FastMetric is the bits of a word of [FastHeard] that hold a metric. Those above count.
	FastMetric = 7
)

// isLeaf reports whether the tables are a leaf's.
func (s *FastSize) isLeaf() bool { return s.FDB > 0 }

// buckets returns how many rows a worker's table of addresses has, with its head.
func (s *FastSize) buckets() int { return s.FDB / fastBucket }

func (s *FastSize) check() error {
	if s.Ports < 1 || s.Ports > MaxPorts || s.Queues < 1 {
		return fmt.Errorf("tables of the fast path for %+v: there has to be a queue, and 1 to %d ports", *s, MaxPorts)
	}
	switch n := s.buckets() - 1; {
	case !s.isLeaf() && (s.Hops < 1 || s.Groups < 1):
		return fmt.Errorf("tables of the fast path for %+v: a spine has next hops and groups", *s)
	case s.isLeaf() && (s.FDB%fastBucket != 0 || n < 1 || n&(n-1) != 0 || s.Hops+s.Groups != 0):
		return fmt.Errorf("tables of the fast path for %+v: a leaf has a table of addresses as overlay.FDBMemory says, and neither next hops nor groups", *s)
	}
	return nil
}

// entries returns the sizes of a leaf's own maps.
func (s *FastSize) leafEntries(cpus int) map[string]int {
	return map[string]int{
		"fast_leaf": FastCopies, "fast_vlans": FastCopies * s.Ports, "fast_fdb": s.Queues * s.buckets(), "fast_touched": s.Queues * fastTouched,
		"fast_heard": cpus * fastPeers, "fast_entered": cpus * fastNetworks, "fast_passed": cpus * s.Ports * s.Ports,
	}
}

func (f *Fast) mapLeaf() (err error) {
	l := &f.leaf
	if l.copies, err = mapped[FastLeaf](f, "fast_leaf"); err != nil {
		return err
	}
	if l.vlans, err = mapped[FastVLANs](f, "fast_vlans"); err != nil {
		return err
	}
	if l.fdb, err = mapped[loomFastBucket](f, "fast_fdb"); err != nil {
		return err
	}
	if l.touched, err = mapped[uint64](f, "fast_touched"); err != nil {
		return err
	}
	if l.heard, err = mapped[FastHeard](f, "fast_heard"); err != nil {
		return err
	}
	if l.entered, err = mapped[loomFastTraffic](f, "fast_entered"); err != nil {
		return err
	}
	if l.passed, err = mapped[loomFastPassage](f, "fast_passed"); err != nil {
		return err
	}
	return f.mapAccess()
}

// LeafCopy returns what is a leaf's own in a copy of the tables, as [Fast.Copy] does with
// the rest. VLANs are by port.
func (f *Fast) LeafCopy(i int) (*FastLeaf, []FastVLANs) {
	return &f.leaf.copies[i], f.leaf.vlans[i*f.size.Ports:][:f.size.Ports]
}

// AddVTEP adds a peer, and the uplinks that its packets may come by, as bits by LBTag. It
// reports false if there is no room: the peer's packets are user space's then.
func (l *loomFastLeaf) AddVTEP(vtep netip.Addr, peer, from uint16) bool {
	b := vtep.As4()
	addr := binary.NativeEndian.Uint32(b[:])
	for i := range uint32(fastAway) {
		v := &l.Vteps[(addr*0x9E3779B1>>20+i)%uint32(len(l.Vteps))]
		if v.Addr == 0 {
			v.Addr, v.Peer, v.From = addr, peer, from
			return true
		}
	}
	return false
}

// AddNetwork adds a VNI, by its index. With senders only these peers
// may send into it, as bits; nil: all may. It reports false if there is no room, as AddVTEP
// does.
func (l *loomFastLeaf) AddNetwork(vni uint32, index uint16, senders []uint64) bool {
	if int(index) >= len(l.Senders) {
		return false
	}
	for i := range uint32(fastAway) {
		n := &l.Networks[(vni*0x9E3779B1>>18+i)%uint32(len(l.Networks))]
		if n.Vni != 0 {
			continue
		}
		n.Vni, n.Index = vni, index
		l.Vnis[index] = vni
		if senders != nil {
			n.Restricted = 1
			copy(l.Senders[index][:], senders)
		}
		return true
	}
	return false
}

// FDB returns the memory of a worker's table of addresses, see overlay.NewFDBIn.
func (f *Fast) FDB(queue int) []byte {
	n := f.size.buckets()
	return unsafe.Slice((*byte)(unsafe.Pointer(&f.leaf.fdb[queue*n])), f.size.FDB)
}

// SetZero says at which time of CLOCK_MONOTONIC, ns, the ticks of the tables of addresses
// begin.
func (f *Fast) SetZero(at uint64) { atomic.StoreUint64(&f.ctl.Zero, at) }

// Touched calls yield with the keys of sources that programs have seen and that are to be
// noted again. It is for the worker of the queue.
func (f *Fast) Touched(queue int, yield func(key uint64)) {
	words := f.leaf.touched[queue*fastTouched:][:fastTouched]
	for i := range words {
		if atomic.LoadUint64(&words[i]) != 0 {
			yield(atomic.SwapUint64(&words[i], 0))
		}
	}
}

// CPUs returns how many CPUs count by themselves.
func (f *Fast) CPUs() int { return f.cpus }

// Heard returns what a CPU has heard of a peer. The programs write it meanwhile.
func (f *Fast) Heard(cpu, peer int) *FastHeard { return &f.leaf.heard[cpu*fastPeers+peer] }

// Came returns how many packets with the fabric's fields have come from a peer by its uplink
// tag, and how many of them have met a busy link.
func (f *Fast) Came(peer uint16, tag uint8) (came, hot uint32) {
	for cpu := range f.cpus {
		h := f.Heard(cpu, int(peer))
		came += atomic.LoadUint32(&h.Came[tag])
		hot += atomic.LoadUint32(&h.Hot[tag])
	}
	return came, hot
}

// Entered returns the frames, and their bytes, that came out of tunnels into a network.
func (f *Fast) Entered(network int) (frames, bytes uint64) {
	return f.traffic(f.leaf.entered, fastNetworks, network)
}

// Passed returns the frames that came in by a port and were given to another one's driver,
// and their bytes when they came and when they left.
func (f *Fast) Passed(in, out int) (frames, came, left uint64) {
	for cpu := range f.cpus {
		p := &f.leaf.passed[(cpu*f.size.Ports+in)*f.size.Ports+out]
		frames += atomic.LoadUint64(&p.Frames)
		came += atomic.LoadUint64(&p.InBytes)
		left += atomic.LoadUint64(&p.OutBytes)
	}
	return frames, came, left
}
