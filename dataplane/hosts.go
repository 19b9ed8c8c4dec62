package dataplane

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

const (
	// hostPlaces is how many IP addresses a worker keeps with their MAC addresses: 256 kB.
	hostPlaces = 8192
	// hostAge is how long they are kept. Stations that talk to each other all the time need not
	// announce themselves again for hours.
	hostAge = 4 * time.Hour
)

// noteHost keeps what ARP and neighbour discovery in f, an untagged tenant's frame
// without ports, say of who has which address. source is an access port, or MaxPorts and a
// peer.
func (l *leafWorker) noteHost(f *frame, vni VNIIndex, source uint16, now mono.Time) {
	if a, m, ok := overlay.Announced(l.bytes(f), f.l3, f.flags); ok {
		l.hosts.Note(l.view.tables.VNIs[vni].VNI, a, m, source, now)
	}
}

// HostTable is which MAC addresses stations have announced for their IP addresses.
type HostTable struct {
	Hosts []HostEntry `json:"hosts"` // by VNI and address; limited
	Total int         `json:"total"`
}

// HostEntry is an IP address that a station has announced. It may have lied.
type HostEntry struct {
	VNI  uint32        `json:"vni"`
	IP   netip.Addr    `json:"ip"`
	MAC  string        `json:"mac"`
	VTEP netip.Addr    `json:"vtep"`   // that it was announced by way of; "" when it was an access port
	Port string        `json:"port"`   // likewise; "" when it was a peer
	Age  time.Duration `json:"age_ns"` // since it was announced last
}

type hostKey struct {
	vni  overlay.VNI
	addr overlay.Addr
}

// lookHosts is how many places a worker looks at between two bursts.
const lookHosts = 4096

// Hosts returns up to limit IP addresses that stations have announced (below 0: all), as
// the worker has them that heard last.
func (n *Node) Hosts(limit int) HostTable {
	seen := make(map[hostKey]overlay.Host)
	var v *view
	for _, w := range n.leaves() {
		look := func(part []overlay.Host, from, to int) []overlay.Host {
			if w.view == nil {
				return part
			}
			v = w.view
			return slices.AppendSeq(part, w.hosts.Some(w.now, from, to))
		}
		inParts(w.worker, w.hosts.Len(), lookHosts, lookHosts, look, func(part []overlay.Host) bool {
			for _, h := range part {
				key := hostKey{h.VNI, h.Addr}
				if have, ok := seen[key]; !ok || h.Age < have.Age {
					seen[key] = h
				}
			}
			return true
		})
	}
	t := HostTable{Hosts: []HostEntry{}, Total: len(seen)}
	for _, h := range seen {
		t.Hosts = append(t.Hosts, v.hostEntry(h))
	}
	slices.SortFunc(t.Hosts, func(a, b HostEntry) int {
		return cmp.Or(cmp.Compare(a.VNI, b.VNI), a.IP.Compare(b.IP))
	})
	if limit >= 0 {
		t.Hosts = t.Hosts[:min(limit, len(t.Hosts))]
	}
	return t
}

func (v *view) hostEntry(h overlay.Host) HostEntry {
	e := HostEntry{VNI: uint32(h.VNI), IP: h.Addr.Netip(), MAC: h.MAC.String(), Age: h.Age}
	if peer := int(h.Source) - MaxPorts; peer < 0 {
		e.Port = v.layout.name(PortID(h.Source))
	} else if peer < len(v.tables.Peers) {
		e.VTEP = v.tables.Peers[peer].VTEP
	}
	return e
}

// hostOf returns what the worker knows of an IP address that heard last.
func (n *Node) hostOf(vni overlay.VNI, ip netip.Addr) (best overlay.Host, ok bool) {
	for _, w := range n.leaves() {
		w.call(func() {
			h, found := w.hosts.Find(vni, overlay.AddrOf(ip), w.now)
			if found && (!ok || h.Age < best.Age) {
				best, ok = h, true
			}
		})
	}
	return best, ok
}
