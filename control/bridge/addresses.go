package bridge

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/overlay"
)

// Change says where an address is from now on.
type Change struct {
	VNI overlay.VNI
	MAC overlay.MAC
	To  Place
}

// Place is where an address is: behind a VTEP, or behind a port. The zero Place says that
// the address is not known, or not usable: its frames are the kernel's.
type Place struct {
	VTEP netip.Addr
	Port int    // index of the interface; 0: it is behind the VTEP
	Tag  uint16 // that frames carry on Port
}

// spot is a Place in less room, with the VNI in which it was said.
type spot struct {
	vni  uint32
	port int32
	tag  uint16
	far  bool
	vtep vtepKey
}

func (s spot) place() Place {
	if s.far {
		return Place{VTEP: s.vtep.addr()}
	}
	return Place{Port: int(s.port), Tag: s.tag}
}

// vtepKey is a VTEP of either family in less room than a netip.Addr; the zero value is none.
type vtepKey [16]byte

func keyOf(a netip.Addr) (k vtepKey) {
	if a.IsValid() && !a.IsUnspecified() {
		k = a.As16()
	}
	return k
}

func (k vtepKey) addr() netip.Addr { return netip.AddrFrom16(k).Unmap() }

// mark is what is known of an entry's being there.
type mark struct {
	present bool
	touched uint32 // the dump during which an event last spoke of it
	seen    uint32 // the dump that last had it
}

// address is a bridge's entry, and what the sink knows of the address.
type address struct {
	mark
	usable bool // frames to it are forwarded, not the bridge's own
	queued bool
	index  int32 // device behind which it is
	said   spot
}

// tunnel is where a VXLAN device looks addresses up.
type tunnel struct {
	device int
	vni    uint32
}

// remote is a VXLAN device's entry.
type remote struct {
	mark
	far
}

// far is the content of a VXLAN device's entry.
type far struct {
	dst  vtepKey
	port uint16
	vni  uint32
	via  bool
	nhid uint32
}

// ref says which address is meant.
type ref struct {
	place
	mac overlay.MAC
}

// addresses is the forwarding entries of all bridges and VXLAN devices, and what of them
// is usable under a model. It does no input and output.
type addresses struct {
	model  *Model
	links  map[int]*Link // the state's
	near   map[place]map[overlay.MAC]*address
	far    map[tunnel]map[overlay.MAC]*remote
	floods map[tunnel]map[vtepKey]*mark
	users  map[tunnel]place // which domain looks addresses up there
	refs   map[vtepKey]int  // entries of the model's devices that name a VTEP
	moved  bool             // refs may have other VTEPs than when it was last asked

	queue   []ref  // addresses that the sink may have to be told of
	dump    uint32 // number of the dump that is running, or that ran last
	dumping bool
	deletes int // in events while a dump is running
	multi   int // entries with a next-hop object
	said    int // addresses that the sink knows
}

func newAddresses(links map[int]*Link) *addresses {
	return &addresses{
		model: &Model{}, links: links,
		near: make(map[place]map[overlay.MAC]*address), far: make(map[tunnel]map[overlay.MAC]*remote),
		floods: make(map[tunnel]map[vtepKey]*mark), users: make(map[tunnel]place), refs: make(map[vtepKey]int),
	}
}

// event takes an entry that the kernel has set, or deleted.
func (a *addresses) event(e *Entry, gone bool) {
	if gone && a.dumping {
		a.deletes++
	}
	a.take(e, gone, false)
}

// take takes an entry from an event, or from a dump. What events say while a dump is
// running is newer than what the dump says, or will be followed by events that are.
func (a *addresses) take(e *Entry, gone, fromDump bool) {
	if e.MAC[0]&1 != 0 { // of groups, and of the link's protocols
		return
	}
	if e.Master != 0 {
		a.takeNear(e, gone, fromDump)
		return
	}
	l := a.links[e.Index]
	if l != nil && l.VXLAN == nil || !e.Cached && !e.DST.IsValid() && e.NHID == 0 {
		return // an interface's own address; the general code's word about a VXLAN device
	}
	t := tunnel{e.Index, e.SrcVNI}
	if e.MAC.IsZero() {
		a.takeFlood(t, keyOf(e.DST), gone, fromDump)
		return
	}
	a.takeFar(t, e, gone, fromDump)
}

// skip notes where a word about an entry comes from. True: it is an older one.
func (a *addresses) skip(m *mark, fromDump bool) bool {
	if !fromDump {
		m.touched = a.dump
		return false
	}
	if m.touched == a.dump {
		return true
	}
	m.seen = a.dump
	return false
}

func (a *addresses) takeNear(e *Entry, gone, fromDump bool) {
	r := ref{place{e.Master, e.VLAN}, e.MAC}
	macs := a.near[r.place]
	x := macs[e.MAC]
	if x == nil {
		if gone && !a.dumping {
			return
		}
		if macs == nil {
			macs = make(map[overlay.MAC]*address)
			a.near[r.place] = macs
		}
		x = &address{}
		macs[e.MAC] = x
	}
	if a.skip(&x.mark, fromDump) {
		return
	}
	// A permanent entry is an address of the port's own.
	usable := e.State&unix.NUD_PERMANENT == 0 && !e.Locked
	if x.present == !gone && x.index == int32(e.Index) && x.usable == usable {
		return
	}
	x.present, x.index, x.usable = !gone, int32(e.Index), usable
	a.enqueue(r, x)
}

func (a *addresses) takeFar(t tunnel, e *Entry, gone, fromDump bool) {
	macs := a.far[t]
	x := macs[e.MAC]
	if x == nil {
		if gone && !a.dumping {
			return
		}
		if macs == nil {
			macs = make(map[overlay.MAC]*remote)
			a.far[t] = macs
		}
		x = &remote{}
		macs[e.MAC] = x
	}
	if a.skip(&x.mark, fromDump) {
		return
	}
	now := far{dst: keyOf(e.DST), port: e.Port, vni: e.VNI, via: e.Via != 0, nhid: e.NHID}
	if gone {
		now = far{}
	}
	a.setFar(t, e.MAC, x, now, !gone)
	if gone && !a.dumping {
		delete(macs, e.MAC)
	}
}

func (a *addresses) setFar(t tunnel, m overlay.MAC, x *remote, now far, present bool) {
	if x.present == present && x.far == now {
		return
	}
	a.refer(t, x.dst, -1)
	a.refer(t, now.dst, 1)
	a.multi += one(now.nhid != 0) - one(x.nhid != 0)
	x.far, x.present = now, present
	a.touchNear(t, m)
}

// touchNear queues the address whose other half has changed.
func (a *addresses) touchNear(t tunnel, m overlay.MAC) {
	if p, ok := a.users[t]; ok {
		if y := a.near[p][m]; y != nil {
			a.enqueue(ref{p, m}, y)
		}
	}
}

func (a *addresses) takeFlood(t tunnel, dst vtepKey, gone, fromDump bool) {
	if dst == (vtepKey{}) {
		return
	}
	dsts := a.floods[t]
	x := dsts[dst]
	if x == nil {
		if gone && !a.dumping {
			return
		}
		if dsts == nil {
			dsts = make(map[vtepKey]*mark)
			a.floods[t] = dsts
		}
		x = &mark{}
		dsts[dst] = x
	}
	if a.skip(x, fromDump) {
		return
	}
	a.setFlood(t, dst, x, !gone)
	if gone && !a.dumping {
		delete(dsts, dst)
	}
}

func (a *addresses) setFlood(t tunnel, dst vtepKey, x *mark, present bool) {
	if x.present != present {
		x.present = present
		a.refer(t, dst, one(present)-one(!present))
	}
}

// refer counts entries that name a VTEP.
func (a *addresses) refer(t tunnel, dst vtepKey, by int) {
	if dst == (vtepKey{}) || !a.model.devices[t.device] {
		return
	}
	before := a.refs[dst]
	if a.refs[dst] = before + by; before+by <= 0 {
		delete(a.refs, dst)
	}
	a.moved = a.moved || before == 0 || before+by <= 0
}

func (a *addresses) enqueue(r ref, x *address) {
	if !x.queued {
		x.queued = true
		a.queue = append(a.queue, r)
	}
}

// find returns where an address is under the model.
func (a *addresses) find(r ref, x *address) (s spot) {
	d := a.model.domains[r.place]
	if d == nil || !x.present || !x.usable || r.mac.IsZero() || d.gateways[r.mac] {
		return s
	}
	if int(x.index) != d.device {
		if l, ok := d.ports[int(x.index)]; ok {
			s = spot{vni: uint32(d.vni), port: int32(l.port), tag: l.tag}
		}
		return s
	}
	f := a.far[tunnel{d.device, d.src}][r.mac]
	switch {
	case f == nil || !f.present || f.dst == (vtepKey{}) || f.nhid != 0 || f.via:
	case f.vni != 0 && f.vni != uint32(d.vni) || f.port != 0 && f.port != d.udpPort:
	case !d.leads(f.dst.addr()):
	default:
		s = spot{vni: uint32(d.vni), far: true, vtep: f.dst}
	}
	return s
}

// leads reports whether an address may be another leaf's VTEP: of the family of this one's,
// neither the leaf itself nor a group, and none that is meant on one link alone.
func (d *domain) leads(a netip.Addr) bool {
	return a != d.vtep && a.Is4() == d.vtep.Is4() && !a.IsMulticast() && !a.IsLinkLocalUnicast() && (a.Is6() || a.As4()[0] < 240)
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}
