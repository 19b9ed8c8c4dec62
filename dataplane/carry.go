package dataplane

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/internal/snapshot"
	"github.com/loomfabric/loom/overlay"
)

// Sections of a node's snapshot, and of each worker's in it, with their versions. A
// section whose version differs is left out by its reader, but for sectionNames and
// sectionFrames, without which nothing can be taken over. Give a section another version
// for each change of its fields, or of what they mean.
const (
	sectionNames  = "names"  // what the numbers of the other sections stand for
	sectionShared = "shared" // what a leaf's workers have in common
	sectionWorker = "worker" // a snapshot inside of this one
	sectionFrames = "frames" // of a worker, and so the next ones
	sectionFDB    = "fdb"
	sectionPeers  = "peers"

	versionNames  = 1
	versionShared = 1
	versionWorker = 1
	versionFrames = 1
	versionFDB    = 1
	versionPeers  = 1
)

// names are what the numbers in a snapshot stand for. The reader's own are others.
type names struct {
	stopped mono.Time // when the writer's workers stopped; 0: they have not
	ports   []portName
	uplinks []string // by LBTag; "": nobody has it
	peers   []netip.Addr
	vnis    []overlay.VNI
	hops    []hopName
}

// portName is what a port is known by. Its name is "" where nobody has the number.
type portName struct {
	name string
	kind PortKind
}

type hopName struct {
	port    uint16
	gateway netip.Addr
}

// namesOf returns the names behind the numbers of a layout, and of a view, which may be
// nil. A view has its own layout.
func namesOf(l *layout, v *view) *names {
	if v != nil {
		l = v.layout
	}
	n := &names{}
	for i := range l.ports {
		n.ports = append(n.ports, portName{l.ports[i].Name, l.ports[i].Kind})
	}
	for tag := range l.uplinks {
		n.uplinks = append(n.uplinks, l.uplinkName(uint8(tag)))
	}
	if v == nil {
		return n
	}
	for i := range v.tables.Peers {
		n.peers = append(n.peers, v.tables.Peers[i].VTEP)
	}
	for i := range v.tables.VNIs {
		n.vnis = append(n.vnis, v.tables.VNIs[i].VNI)
	}
	for i := range v.tables.Hops {
		n.hops = append(n.hops, hopName{uint16(v.tables.Hops[i].Port), v.tables.Hops[i].Gateway})
	}
	return n
}

func saveAddr(w *snapshot.Writer, a netip.Addr) { w.String(a.String()) }

func loadAddr(r *snapshot.Reader) netip.Addr {
	text := r.String()
	a, err := netip.ParseAddr(text)
	if err != nil && text != (netip.Addr{}).String() {
		r.Fail(err)
	}
	return a
}

// save writes the names as a section.
func (n *names) save(w *snapshot.Writer) {
	w.Begin(sectionNames, versionNames)
	defer w.End()
	w.U64(uint64(n.stopped))
	w.U32(uint32(len(n.ports)))
	for _, p := range n.ports {
		w.String(p.name)
		w.U8(uint8(p.kind))
	}
	w.U32(uint32(len(n.uplinks)))
	for _, name := range n.uplinks {
		w.String(name)
	}
	w.U32(uint32(len(n.peers)))
	for _, a := range n.peers {
		saveAddr(w, a)
	}
	w.U32(uint32(len(n.vnis)))
	for _, v := range n.vnis {
		w.U32(uint32(v))
	}
	w.U32(uint32(len(n.hops)))
	for _, h := range n.hops {
		w.U16(h.port)
		saveAddr(w, h.gateway)
	}
}

// loadNames reads what save wrote.
func loadNames(body []byte) (*names, error) {
	r := snapshot.NewReader(body)
	n := &names{stopped: mono.Time(r.U64())}
	for range r.Count(5) {
		n.ports = append(n.ports, portName{r.String(), PortKind(r.U8())})
	}
	for range r.Count(4) {
		n.uplinks = append(n.uplinks, r.String())
	}
	for range r.Count(4) {
		n.peers = append(n.peers, loadAddr(r))
	}
	for range r.Count(4) {
		n.vnis = append(n.vnis, overlay.VNI(r.U32()))
	}
	for range r.Count(6) {
		n.hops = append(n.hops, hopName{r.U16(), loadAddr(r)})
	}
	return n, r.Done()
}

// translation is from the numbers of a snapshot to those of its reader, -1 for what the
// reader does not have.
type translation struct {
	ports, peers, vnis, hops []int
	sameUplinks              bool // no LBTag means another uplink
}

// translate returns the translation from other's numbers to n's.
func (n *names) translate(other *names) *translation {
	t := &translation{sameUplinks: true}
	for tag := range min(len(n.uplinks), len(other.uplinks)) {
		if a, b := n.uplinks[tag], other.uplinks[tag]; a != b && a != "" && b != "" {
			t.sameUplinks = false
		}
	}
	t.ports = indices(n.ports, other.ports)
	for i := range other.ports {
		if other.ports[i].name == "" {
			t.ports[i] = -1
		}
	}
	t.peers = indices(n.peers, other.peers)
	t.vnis = indices(n.vnis, other.vnis)
	for i := range other.hops {
		h := other.hops[i]
		port := at(t.ports, int(h.port))
		t.hops = append(t.hops, slices.Index(n.hops, hopName{uint16(port), h.gateway}))
		if port < 0 {
			t.hops[i] = -1
		}
	}
	return t
}

// indices returns where each of other stands in own, -1 for what is not there, and for
// places that nobody has.
func indices[K comparable](own, other []K) []int {
	where := make(map[K]int, len(own))
	for i, k := range own {
		where[k] = i
	}
	to := make([]int, len(other))
	var nobody K
	for i, k := range other {
		var ok bool
		if to[i], ok = where[k]; !ok || k == nobody {
			to[i] = -1
		}
	}
	return to
}

// at returns what a number is translated to; -1: nothing.
func at(list []int, i int) int {
	if i < 0 || i >= len(list) {
		return -1
	}
	return list[i]
}

// peer is the translation of a peer's number for the core.
func (t *translation) peer(p uint16) (uint16, bool) {
	i := at(t.peers, int(p))
	return uint16(max(i, 0)), i >= 0
}

// wanted checks the version of a section.
func wanted(s *snapshot.Section, version uint16) error {
	switch {
	case s.Broken != nil:
		return s.Broken
	case s.Version != version:
		return fmt.Errorf("it has version %d, and this is version %d", s.Version, version)
	}
	return nil
}
