package bpf

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/overlay"
)

// Rule holds the tables that the programs of a leaf ask whose overlay is the kernel's
// (decision 0025): which addresses, networks and peers user space forwards for. The
// programs of all its ports share them, see [Config.Rule]. Any goroutine may call LookAt,
// Size and Memory until Close; only one at a time may call the other methods.
type Rule struct {
	size      RuleSize
	addresses *ebpf.Map
	networks  *ebpf.Map
	peers     *ebpf.Map // of IPv4
	peers6    *ebpf.Map // of IPv6
	served    *ebpf.Map
	placed    map[overlay.FDBKey]overlay.Dest // what addresses has
	has       RuleTables                      // what the others have
}

// RuleSize says how much a [Rule] holds. The memory is taken at once: about 80 bytes for
// an address.
type RuleSize struct {
	Addresses, Networks, Peers int
}

// RuleTables is what a [Rule] holds besides addresses.
type RuleTables struct {
	Networks map[overlay.VNI]uint16 // their numbers, which addresses have in their keys
	Peers    map[netip.Addr]bool    // VTEPs whose VXLAN may be user space's
	Ports    [MaxPorts]bool         // by port: user space can send by it
	Ways     [MaxPeers]bool         // by peer, as addresses name it: user space has a path to it
}

// The places that user space can send to, as in loom.c.
const (
	MaxPorts = 256
	MaxPeers = 1024
)

// ErrRuleFull says that a table of a [Rule] has no room for more.
var ErrRuleFull = errors.New("the table of the XDP programs is full")

// ruleMaps are the names of a rule's maps in loom.c.
var ruleMaps = [...]string{"addresses", "networks", "peers", "peers6", "served"}

// OpenRule makes empty tables. The caller closes them. Without the privileges the error
// matches [os.ErrPermission].
func OpenRule(size RuleSize) (*Rule, error) {
	if size.Addresses < 1 || size.Networks < 1 || size.Peers < 1 {
		return nil, fmt.Errorf("XDP tables for %d addresses, %d networks and %d peers: each needs room for 1 at least", size.Addresses, size.Networks, size.Peers)
	}
	if err := rlimit.RemoveMemlock(); err != nil { // as in load
		return nil, fmt.Errorf("raise RLIMIT_MEMLOCK: %w", err)
	}
	spec, err := loadLoom()
	if err != nil {
		return nil, fmt.Errorf("read embedded object: %w", err)
	}
	r := &Rule{size: size, placed: make(map[overlay.FDBKey]overlay.Dest), has: RuleTables{Networks: make(map[overlay.VNI]uint16), Peers: make(map[netip.Addr]bool)}}
	for _, m := range []struct {
		to   **ebpf.Map
		name string
		size int
	}{{&r.addresses, "addresses", size.Addresses}, {&r.networks, "networks", size.Networks}, {&r.peers, "peers", size.Peers}, {&r.peers6, "peers6", size.Peers}, {&r.served, "served", MaxPorts + MaxPeers}} {
		s := spec.Maps[m.name].Copy()
		s.MaxEntries = uint32(m.size)
		if *m.to, err = ebpf.NewMap(s); err != nil {
			return nil, errors.Join(fmt.Errorf("make XDP table of %d %s: %w", m.size, m.name, err), r.Close())
		}
	}
	return r, nil
}

// maps returns the tables that the program of a kind of port asks; none of a nil rule.
func (r *Rule) maps(k Kind) map[string]*ebpf.Map {
	switch {
	case r == nil:
		return nil
	case k == Access:
		return map[string]*ebpf.Map{"addresses": r.addresses, "served": r.served}
	}
	return map[string]*ebpf.Map{"addresses": r.addresses, "networks": r.networks, "peers": r.peers, "peers6": r.peers6, "served": r.served}
}

// Size returns what the tables have room for.
func (r *Rule) Size() RuleSize { return r.size }

// Memory returns how much the kernel charges for the tables, bytes; 0 if it does not say.
func (r *Rule) Memory() (bytes uint64) {
	for _, m := range []*ebpf.Map{r.addresses, r.networks, r.peers, r.peers6, r.served} {
		if m == nil {
			continue
		}
		if info, err := m.Info(); err == nil {
			n, _ := info.Memlock()
			bytes += n
		}
	}
	return bytes
}

// SetAddresses puts addresses where they are, keys[i] at places[i], in the place of what
// the table said of them. The kernel gets the next frame of each. It returns how many were
// set: the first ones. The error matches [ErrRuleFull] if there is no room for the rest.
func (r *Rule) SetAddresses(keys []overlay.FDBKey, places []overlay.Dest) (int, error) {
	if len(keys) == 0 {
		return 0, nil
	}
	now, err := tick()
	if err != nil {
		return 0, err
	}
	values := make([]loomLoomAddress, len(keys))
	for i, at := range places {
		values[i] = loomLoomAddress{Place: uint32(at), Passed: now - maxRefresh - 1}
	}
	n, err := r.addresses.BatchUpdate(keys, values, nil)
	for i, key := range keys[:min(n, len(keys))] {
		r.placed[key] = places[i]
	}
	if errors.Is(err, unix.E2BIG) {
		return n, fmt.Errorf("set %d addresses, %d of them set: %w: it has room for %d", len(keys), n, ErrRuleFull, r.size.Addresses)
	}
	if err != nil {
		return n, fmt.Errorf("set %d addresses for XDP programs: %w", len(keys), err)
	}
	return n, nil
}

// DeleteAddresses forgets those of the addresses that the table knows.
func (r *Rule) DeleteAddresses(keys []overlay.FDBKey) error {
	known := make([]overlay.FDBKey, 0, len(keys)) // the kernel stops at the first one that it does not know
	for _, key := range keys {
		if _, ok := r.placed[key]; ok {
			known = append(known, key)
		}
	}
	if len(known) == 0 {
		return nil
	}
	n, err := r.addresses.BatchDelete(known, nil)
	for _, key := range known[:min(n, len(known))] {
		delete(r.placed, key)
	}
	if err != nil {
		return fmt.Errorf("delete %d addresses for XDP programs: %w", len(known), err)
	}
	return nil
}

// Len returns the number of addresses that the table has.
func (r *Rule) Len() int { return len(r.placed) }

// Find returns the addresses that match says yes to, in no order.
func (r *Rule) Find(match func(key overlay.FDBKey, at overlay.Dest) bool) (keys []overlay.FDBKey) {
	for key, at := range r.placed {
		if match(key, at) {
			keys = append(keys, key)
		}
	}
	return keys
}

// RuleAddress is what the programs know of an address.
type RuleAddress struct {
	At overlay.Dest
	// Passed is the time since the kernel was last shown a frame of the address, to 17 ms.
	// It is 18 minutes or more if the kernel was shown none since the address was set.
	Passed time.Duration
}

// LookAt returns what the programs know of an address, and whether they know it.
func (r *Rule) LookAt(key overlay.FDBKey) (a RuleAddress, ok bool, err error) {
	var v loomLoomAddress
	if err := r.addresses.Lookup(key, &v); errors.Is(err, ebpf.ErrKeyNotExist) {
		return a, false, nil
	} else if err != nil {
		return a, false, fmt.Errorf("look up an address of XDP programs: %w", err)
	}
	now, err := tick()
	if err != nil {
		return a, true, err
	}
	return RuleAddress{At: overlay.Dest(v.Place), Passed: time.Duration(now-v.Passed) << tickShift}, true, nil
}

// Retain forgets what is not as in want. It is called before user space gives up what is
// not in want, and [Rule.Set] after user space knows what is.
func (r *Rule) Retain(want *RuleTables) error {
	for vni, was := range r.has.Networks {
		if now, ok := want.Networks[vni]; ok && now == was {
			continue
		}
		if err := forget(r.networks, uint32(vni)); err != nil {
			return fmt.Errorf("delete VNI %d for XDP programs: %w", vni, err)
		}
		delete(r.has.Networks, vni)
	}
	for vtep := range r.has.Peers {
		if want.Peers[vtep] {
			continue
		}
		if err := r.deletePeer(vtep); err != nil {
			return fmt.Errorf("delete VTEP %v for XDP programs: %w", vtep, err)
		}
		delete(r.has.Peers, vtep)
	}
	return r.setServed(want, false)
}

// Set adds what is in want. The error matches [ErrRuleFull] if there is no room for it.
func (r *Rule) Set(want *RuleTables) error {
	if len(want.Networks) > r.size.Networks || len(want.Peers) > r.size.Peers {
		return fmt.Errorf("%d networks and %d peers: %w: it has room for %d and %d", len(want.Networks), len(want.Peers), ErrRuleFull, r.size.Networks, r.size.Peers)
	}
	for vni, number := range want.Networks {
		if was, ok := r.has.Networks[vni]; ok && was == number {
			continue
		}
		if err := r.networks.Put(uint32(vni), uint32(number)); err != nil {
			return fmt.Errorf("set VNI %d for XDP programs: %w", vni, err)
		}
		r.has.Networks[vni] = number
	}
	for vtep, yes := range want.Peers {
		if !yes || r.has.Peers[vtep] {
			continue
		}
		if err := r.putPeer(vtep); err != nil {
			return fmt.Errorf("set VTEP %v for XDP programs: %w", vtep, err)
		}
		r.has.Peers[vtep] = true
	}
	return r.setServed(want, true)
}

// setServed makes the places served that are to be, or those not that are not to be.
func (r *Rule) setServed(want *RuleTables, served bool) error {
	put := func(first int, has, want []bool) error {
		for i := range has {
			if want[i] != served || has[i] == served {
				continue
			}
			value := uint32(0)
			if served {
				value = 1
			}
			if err := r.served.Put(uint32(first+i), value); err != nil {
				return fmt.Errorf("tell XDP programs that place %d is served: %w", first+i, err)
			}
			has[i] = served
		}
		return nil
	}
	return errors.Join(put(0, r.has.Ports[:], want.Ports[:]), put(MaxPorts, r.has.Ways[:], want.Ways[:]))
}

func (r *Rule) putPeer(vtep netip.Addr) error {
	if vtep.Is4() {
		return r.peers.Put(beAddr(vtep), uint32(1))
	}
	return r.peers6.Put(beAddr6(vtep), uint32(1))
}

func (r *Rule) deletePeer(vtep netip.Addr) error {
	if vtep.Is4() {
		return forget(r.peers, beAddr(vtep))
	}
	return forget(r.peers6, beAddr6(vtep))
}

// forget deletes a key that may be gone.
func forget(m *ebpf.Map, key any) error {
	if err := m.Delete(key); !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	return nil
}

// Close frees the tables once the last program that asks them is closed, too. Closing
// twice is harmless.
func (r *Rule) Close() (err error) {
	for _, m := range []**ebpf.Map{&r.addresses, &r.networks, &r.peers, &r.peers6, &r.served} {
		if *m != nil {
			err = errors.Join(err, (*m).Close())
			*m = nil
		}
	}
	return err
}

// VLANs is the number of VLAN identifiers; 0 stands for frames without a tag.
const VLANs = 4096

// VLAN is what the frames of a VLAN of an access port belong to.
type VLAN struct {
	Network uint16 // the network's number, and one; 0: none, its frames are the kernel's
	// Refresh is the time between the frames of a source that the kernel is shown, at most
	// 18 minutes. It has to be well below the ageing time of the kernel's bridge. 0: the
	// kernel gets all frames.
	Refresh time.Duration
}

const (
	tickShift  = 24        // from nanoseconds to ticks of 2^24 ns, as in overlay.FDB
	maxRefresh = 1<<16 - 1 // ticks
)

// tick returns the programs' time, ticks.
func tick() (uint32, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &t); err != nil {
		return 0, fmt.Errorf("read the clock: %w", err)
	}
	return uint32(t.Nano() >> tickShift), nil
}

// value is the VLAN as loom.c has it.
func (v VLAN) value() loomLoomVlan {
	return loomLoomVlan{Network: v.Network, Refresh: uint16(min(max(v.Refresh, 0)>>tickShift, maxRefresh))}
}

// RetainVLANs forgets the VLANs of an access port with a rule that are not as in want, by
// VLAN identifier.
func (p *Program) RetainVLANs(want *[VLANs]VLAN) error {
	return p.setVLANs(func(vid int) (VLAN, bool) {
		return VLAN{}, p.bound[vid].Network != 0 && p.bound[vid].Network != want[vid].Network
	})
}

// SetVLANs makes the VLANs of an access port with a rule those in want, by VLAN
// identifier.
func (p *Program) SetVLANs(want *[VLANs]VLAN) error {
	return p.setVLANs(func(vid int) (VLAN, bool) { return want[vid], want[vid] != p.bound[vid] })
}

// setVLANs sets those for which change says so.
func (p *Program) setVLANs(change func(vid int) (VLAN, bool)) error {
	if p.vlans == nil {
		return fmt.Errorf("set VLANs of %s: %w", p.cfg.name(), os.ErrClosed)
	}
	if p.bound == nil {
		p.bound = make([]VLAN, VLANs)
	}
	for vid := range VLANs {
		v, ok := change(vid)
		if !ok {
			continue
		}
		if err := p.vlans.Put(uint32(vid), v.value()); err != nil {
			return fmt.Errorf("set VLAN %d of %s: %w", vid, p.cfg.name(), err)
		}
		p.bound[vid] = v
	}
	return nil
}
