package bridge

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/overlay"
)

// Interfaces of the fake kernel: a bridge without VLANs, one with VLANs and a device for
// each VNI, and one with a single VXLAN device.
const (
	br1, vx100, a1, a2 = 1, 2, 3, 4
	br2, vx200, vx201  = 11, 12, 13
	b1, b2             = 14, 15 // VLAN 20 untagged and 21 tagged; both tagged
	br3, svd, c1       = 21, 22, 23
)

// fakeKernel is a kernel whose tables are maps, and that says each change. It knows
// nothing of halves, dumps or models: what a frame would do is asked of its maps.
type fakeKernel struct {
	rng     *rand.Rand
	links   map[int]Link
	fdb     map[ref]Entry // of bridges
	vxlan   map[tunnel]map[overlay.MAC]Entry
	events  []event // that are on the way; those about links are in changes
	changes []func(*engine, time.Time)
	lossy   bool
	lost    bool
	six     bool // VTEPs are of IPv6
}

func member(index int, name, kind string, bridge int, vlans ...VLANRange) Link {
	return Link{Index: index, Name: name, Kind: kind, MTU: 1500, Up: true, Master: bridge, MAC: overlay.MAC{2, 0xff, 0, 0, 0, byte(index)},
		Member: &Member{State: forwarding, Learning: true}, VLANs: vlans}
}

func vxlanMember(index int, name string, bridge int, vni uint32, vlans ...VLANRange) Link {
	l := member(index, name, "vxlan", bridge, vlans...)
	l.VXLAN = &VXLAN{VNI: vni, Local: netip.MustParseAddr("10.0.0.1"), Port: 4789}
	return l
}

func bridgeLink(index int, name string, filtering bool) Link {
	return Link{Index: index, Name: name, Kind: "bridge", MTU: 1500, Up: true, MAC: overlay.MAC{2, 0xff, 0, 0, 0, byte(index)},
		Bridge: &Bridge{Filtering: filtering, Protocol: ethVLAN, Ageing: 300 * time.Second}}
}

func newFakeKernel(rng *rand.Rand, six bool) *fakeKernel {
	k := &fakeKernel{rng: rng, six: six, links: make(map[int]Link), fdb: make(map[ref]Entry), vxlan: make(map[tunnel]map[overlay.MAC]Entry)}
	one := vxlanMember(svd, "svd", br3, 0, VLANRange{First: 30, Last: 31})
	one.VXLAN.External, one.Member.Tunnel = true, true
	one.Tunnels = []TunnelRange{{30, 31, 300}}
	for _, l := range []Link{
		bridgeLink(br1, "br1", false), vxlanMember(vx100, "vx100", br1, 100), member(a1, "a1", "veth", br1), member(a2, "a2", "veth", br1),
		bridgeLink(br2, "br2", true), vxlanMember(vx200, "vx200", br2, 200, VLANRange{20, 20, true, true}),
		vxlanMember(vx201, "vx201", br2, 201, VLANRange{21, 21, true, true}),
		member(b1, "b1", "veth", br2, VLANRange{20, 20, true, true}, VLANRange{First: 21, Last: 21}), member(b2, "b2", "veth", br2, VLANRange{First: 20, Last: 21}),
		bridgeLink(br3, "br3", true), one, member(c1, "c1", "veth", br3, VLANRange{First: 30, Last: 31}),
	} {
		if six && l.VXLAN != nil {
			l.VXLAN.Local, l.VXLAN.ZeroChecksum = k.vtep(0), true
		}
		k.links[l.Index] = l
	}
	return k
}

// world is one VLAN of one bridge, as the test knows it to be wired.
type world struct {
	place
	vni    uint32
	device int
	src    uint32
	ports  map[int]uint16 // tags
}

var worlds = []world{
	{place{br1, 0}, 100, vx100, 0, map[int]uint16{a1: 0, a2: 0}},
	{place{br2, 20}, 200, vx200, 0, map[int]uint16{b1: 0, b2: 20}},
	{place{br2, 21}, 201, vx201, 0, map[int]uint16{b1: 21, b2: 21}},
	{place{br3, 30}, 300, svd, 300, map[int]uint16{c1: 30}},
	{place{br3, 31}, 301, svd, 301, map[int]uint16{c1: 31}},
}

type key struct {
	vni uint32
	mac overlay.MAC
}

// truth is what the final tables say, found out the plain way.
func (k *fakeKernel) truth() map[key]Place {
	out := make(map[key]Place)
	for _, w := range worlds {
		vx, here := k.links[w.device]
		if !here || vx.Member == nil || vx.Member.State != forwarding {
			continue
		}
		for r, e := range k.fdb {
			if r.place != w.place || e.State == unix.NUD_PERMANENT {
				continue
			}
			if e.Index == w.device {
				f, ok := k.vxlan[tunnel{w.device, w.src}][r.mac]
				if ok && f.DST.IsValid() && f.NHID == 0 && (f.VNI == 0 || f.VNI == w.vni) && f.DST != k.vtep(0) {
					out[key{w.vni, r.mac}] = Place{VTEP: f.DST}
				}
				continue
			}
			l, here := k.links[e.Index]
			if tag, ok := w.ports[e.Index]; ok && here && l.Member != nil && l.Member.State == forwarding && !l.Member.Isolated {
				out[key{w.vni, r.mac}] = Place{Port: e.Index, Tag: tag}
			}
		}
	}
	return out
}

func (k *fakeKernel) say(v event, change func(*engine, time.Time)) {
	if k.lossy {
		k.lost = true
		return
	}
	k.events, k.changes = append(k.events, v), append(k.changes, change)
}

func (k *fakeKernel) entry(e Entry, gone bool) {
	e.Cached = true
	kind := uint16(unix.RTM_NEWNEIGH)
	if gone {
		kind = unix.RTM_DELNEIGH
	}
	k.say(event{kind: kind, entry: e}, nil)
}

func pick[T any](rng *rand.Rand, from ...T) T { return from[rng.IntN(len(from))] }

// step changes something.
func (k *fakeKernel) step() {
	w := pick(k.rng, worlds...)
	m := overlay.MAC{2, 0, 0, 0, 0, byte(k.rng.IntN(12))}
	switch n := k.rng.IntN(100); {
	case n < 38:
		k.setNear(w, m)
	case n < 43:
		r := ref{w.place, m}
		if e, ok := k.fdb[r]; ok {
			delete(k.fdb, r)
			k.entry(e, true)
		}
	case n < 81:
		k.setFar(w, m)
	case n < 86:
		if e, ok := k.vxlan[tunnel{w.device, w.src}][m]; ok {
			delete(k.vxlan[tunnel{w.device, w.src}], m)
			k.entry(e, true)
		}
	case n < 92: // the general code's word about a VXLAN device, which says nothing
		k.say(event{kind: pick[uint16](k.rng, unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH), entry: Entry{MAC: m, Index: w.device, Flags: unix.NTF_SELF}}, nil)
	case n < 96:
		e := Entry{Index: w.device, SrcVNI: w.src, DST: k.vtep(k.rng.IntN(4)), Cached: true}
		k.say(event{kind: pick[uint16](k.rng, unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH), entry: e}, nil)
	default:
		k.changeLink(w)
	}
}

// vtep returns a VTEP's address; that of 0 is the leaf's own.
func (k *fakeKernel) vtep(i int) netip.Addr {
	if k.six {
		return netip.AddrFrom16([16]byte{0xfd, 13: byte(1 + i), 15: 1})
	}
	return netip.AddrFrom4([4]byte{10, 0, 0, byte(1 + i)})
}

func (k *fakeKernel) setNear(w world, m overlay.MAC) {
	e := Entry{MAC: m, VLAN: w.vlan, Master: w.bridge, Index: w.device, State: unix.NUD_REACHABLE}
	for p := range w.ports {
		if k.rng.IntN(2) == 0 {
			e.Index = p
		}
	}
	if k.rng.IntN(10) == 0 {
		e.State = unix.NUD_PERMANENT
	}
	if l, here := k.links[e.Index]; here && l.Member != nil {
		k.fdb[ref{w.place, m}] = e
		k.entry(e, false)
	}
}

func (k *fakeKernel) setFar(w world, m overlay.MAC) {
	if _, here := k.links[w.device]; !here {
		return
	}
	e := Entry{MAC: m, Index: w.device, SrcVNI: w.src, DST: k.vtep(k.rng.IntN(5)), State: unix.NUD_NOARP}
	switch k.rng.IntN(10) {
	case 0:
		e.DST, e.NHID = netip.Addr{}, 7
	case 1:
		e.VNI = 999
	case 2:
		e.VNI = w.vni
	}
	t := tunnel{w.device, w.src}
	if k.vxlan[t] == nil {
		k.vxlan[t] = make(map[overlay.MAC]Entry)
	}
	k.vxlan[t][m] = e
	k.entry(e, false)
}

func (k *fakeKernel) changeLink(w world) {
	indices := []int{w.device}
	for p := range w.ports {
		indices = append(indices, p)
	}
	i := pick(k.rng, indices...)
	l, here := k.links[i]
	original := newFakeKernel(k.rng, k.six).links[i]
	switch {
	case !here: // it comes back
		l = original
	case k.rng.IntN(3) == 0: // it goes, and what was behind it
		k.flush(i)
		for t := range k.vxlan {
			if t.device == i {
				delete(k.vxlan, t)
			}
		}
		delete(k.links, i)
		k.say(event{}, func(e *engine, now time.Time) { e.setLink(Link{Index: i}, true, now) })
		return
	case l.Member == nil: // it joins its bridge again
		l = original
	case k.rng.IntN(3) == 0: // it leaves
		k.flush(i)
		l.Member, l.Master, l.VLANs, l.Tunnels = nil, 0, nil, nil
		k.links[i] = l
		k.say(event{}, func(e *engine, now time.Time) { e.setPort(portInfo{Index: i}, true, now) })
		return
	default:
		m := *l.Member
		m.State, m.Isolated = pick[uint8](k.rng, forwarding, 4), k.rng.IntN(3) == 0
		l.Member = &m
	}
	k.links[i] = l
	k.say(event{}, func(e *engine, now time.Time) { e.setLink(l, false, now) })
	k.say(event{}, func(e *engine, now time.Time) { e.setPort(portOf(l), false, now) })
}

func portOf(l Link) portInfo {
	return portInfo{Index: l.Index, Master: l.Master, Member: l.Member, VLANs: l.VLANs, Tunnels: l.Tunnels}
}

// flush deletes the bridges' entries behind a port, and says so.
func (k *fakeKernel) flush(port int) {
	for r, e := range k.fdb {
		if e.Index == port {
			delete(k.fdb, r)
			k.entry(e, true)
		}
	}
}

func (k *fakeKernel) list(want kinds) *listing {
	l := &listing{kinds: want, vnis: map[int]VNISet{}}
	for _, x := range k.links {
		bare := x
		bare.VLANs, bare.Tunnels = nil, nil
		l.links = append(l.links, bare)
		if x.Member != nil {
			l.ports = append(l.ports, portOf(x))
		}
	}
	return l
}

// dump returns all entries in an order of its own.
func (k *fakeKernel) dumpOrder() (order []func() (Entry, bool)) {
	for r := range k.fdb {
		order = append(order, func() (Entry, bool) { e, ok := k.fdb[r]; return e, ok })
	}
	for t, macs := range k.vxlan {
		for m := range macs {
			order = append(order, func() (Entry, bool) { e, ok := k.vxlan[t][m]; return e, ok })
		}
	}
	k.rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	return order
}

// recorder is a sink that checks that each change fits the model.
type recorder struct {
	t     testing.TB
	model *Model
	has   map[key]Place
}

func (r *recorder) fits(k key, p Place) error {
	if r.model == nil {
		return fmt.Errorf("there is no model yet")
	}
	found := false
	for _, d := range r.model.Domains {
		found = found || uint32(d.VNI) == k.vni
	}
	if !found {
		return fmt.Errorf("the model has no VNI %d", k.vni)
	}
	if p.Port == 0 {
		for _, v := range r.model.Peers {
			if v == p.VTEP {
				return nil
			}
		}
		return fmt.Errorf("the model has no peer %v", p.VTEP)
	}
	for _, port := range r.model.Ports {
		for _, b := range port.VLANs {
			if port.Index == p.Port && b.Tag == p.Tag && uint32(b.VNI) == k.vni {
				return nil
			}
		}
	}
	return fmt.Errorf("the model has no port %d with tag %d and VNI %d", p.Port, p.Tag, k.vni)
}

func (r *recorder) SetModel(m *Model) {
	r.model = m
	for k, p := range r.has {
		if err := r.fits(k, p); err != nil {
			r.t.Fatalf("a new model leaves address %v behind: %v", k, err)
		}
	}
}

func (r *recorder) ChangeAddresses(changes []Change) {
	for _, c := range changes {
		k := key{uint32(c.VNI), c.MAC}
		if c.To == (Place{}) {
			delete(r.has, k)
			continue
		}
		if err := r.fits(k, c.To); err != nil {
			r.t.Fatalf("address %v: %v", k, err)
		}
		r.has[k] = c.To
	}
}

// driver moves events and lists between the two, at its own pace.
type driver struct {
	*fakeKernel
	e     *engine
	now   time.Time
	dump  []func() (Entry, bool)
	read  []Entry // of the dump, and not taken yet
	dumps bool
	calm  bool // nothing is lost, and there is one dump: a mistake is not made up for later
	list  *listing
}

func (d *driver) deliver(n int) {
	for ; n > 0 && len(d.events) > 0; n-- {
		if change := d.changes[0]; change != nil {
			change(d.e, d.now)
		} else {
			d.e.take(&d.events[0], d.now)
		}
		d.events, d.changes = d.events[1:], d.changes[1:]
	}
	if len(d.events) == 0 && d.lost && !d.lossy {
		d.lost = false
		d.e.take(&event{}, d.now)
	}
}

// work goes on with lists a little.
func (d *driver) work() {
	d.now = d.now.Add(time.Duration(d.rng.IntN(40)) * time.Millisecond)
	if d.list != nil && d.rng.IntN(2) == 0 {
		d.e.endList(d.list, d.now)
		d.list = nil
	}
	if k := d.e.beginList(d.now); k != 0 {
		d.list = d.fakeKernel.list(k)
	}
	if d.dumps {
		for i := range d.read {
			d.e.addrs.take(&d.read[i], false, true)
		}
		d.read = nil
		for n := d.rng.IntN(8); n > 0 && len(d.dump) > 0; n-- {
			if e, ok := d.dump[0](); ok {
				e.Cached = true
				d.read = append(d.read, e)
			}
			d.dump = d.dump[1:]
		}
		if len(d.dump) == 0 && len(d.read) == 0 {
			d.dumps = false
			if d.calm {
				d.e.entries.again = maxAgain
			}
			d.e.endEntries(d.calm || d.rng.IntN(10) > 0, 10*time.Millisecond, d.now)
		}
	}
	if d.e.beginEntries(d.now) {
		d.dumps, d.dump = true, d.dumpOrder()
	}
	d.e.flush(d.now)
}

// Whatever happens in the kernel, and whatever part of it is not heard, in the end the
// addresses are those that the kernel's tables say.
func TestMirrorEqualsTheKernel(t *testing.T) {
	rounds := 100
	if testing.Short() {
		rounds = 30
	}
	compared := 0
	for seed := range uint64(rounds) {
		rng := rand.New(rand.NewPCG(seed, 13))
		sink := &recorder{t: t, has: make(map[key]Place)}
		d := &driver{fakeKernel: newFakeKernel(rng, seed%4 >= 2), e: newEngine(sink, func(uint32) bool { return false }), now: time.Unix(1000, 0), calm: seed%2 == 0}
		for range 30 {
			d.step() // before anybody listens
		}
		d.events, d.changes = nil, nil
		for range 400 {
			for n := rng.IntN(4); n > 0; n-- {
				d.step()
			}
			switch rng.IntN(60) {
			case 0:
				if d.lossy = !d.calm; d.calm {
					d.e.take(&event{}, d.now) // nothing was lost; a dump is made all the same
				}
			case 1, 2, 3:
				d.lossy = false
			}
			d.deliver(rng.IntN(6))
			d.work()
		}
		d.lossy = false
		for range 1000 {
			d.deliver(len(d.events))
			d.now = d.now.Add(10 * time.Millisecond)
			d.work()
		}
		want := d.truth()
		if !maps.Equal(sink.has, want) {
			t.Fatalf("seed %d: the sink has\n%v\nand the kernel's tables say\n%v\nstale %t dirty %b entries %+v dumping %t lost %t links %v %v", seed, sink.has, want,
				d.e.stale, d.e.dirty, d.e.entries, d.e.addrs.dumping, d.lost, words(d.e.model), words(Derive(stateOf(slices.Collect(maps.Values(d.links))...), nil, d.e.ours)))
		}
		if d.e.addrs.said != len(want) {
			t.Fatalf("seed %d: %d addresses are counted, and there are %d", seed, d.e.addrs.said, len(want))
		}
		compared += len(want)
	}
	if compared < rounds {
		t.Errorf("only %d addresses were compared", compared)
	}
	t.Logf("%d addresses compared", compared)
}

// TestLeavesWhileListed: a port that leaves its bridge while links are being listed stays
// out of it, though the list has it as a member still. Nothing would be listed again.
func TestLeavesWhileListed(t *testing.T) {
	k := newFakeKernel(rand.New(rand.NewPCG(1, 2)), false)
	e := newEngine(&recorder{t: t, has: make(map[key]Place)}, func(uint32) bool { return false })
	now := time.Unix(1000, 0)
	for range 2 { // to begin with, and again when it has left meanwhile
		list := k.list(e.beginList(now))
		if e.state.Links[vx100] != nil {
			e.setPort(portInfo{Index: vx100}, true, now)
		}
		e.endList(list, now)
		e.dirty = everything
		now = now.Add(time.Minute)
	}
	if l := e.state.Links[vx100]; l == nil || l.Member != nil || l.Master != 0 {
		t.Errorf("the VXLAN device is %+v", l)
	}
}
