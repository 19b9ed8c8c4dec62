package dataplane

import (
	"fmt"
	"slices"
	"time"

	"github.com/loomfabric/loom/internal/ids"
)

// portRest is how long a PortID and an LBTag rest before they go to another port. Until
// then nobody may know anything of the port before: its addresses leave the FDB at once,
// its frames with its socket, packets under way within [grace] and [returning], and what
// peers know of a tag, and the flows that they have seen by it, within seconds.
const portRest = 10 * time.Second

// layout says which port has which PortID, and which uplink has which LBTag. It is
// immutable.
type layout struct {
	ports   []seat
	uplinks []PortID // by LBTag; NoPort: nobody has it
	order   []uint8  // LBTags of the uplinks, in the order of the configuration
}

// seat is a port's place. Its Name is "" while nobody has it.
type seat struct {
	PortConfig
	tag uint8 // of an uplink: its LBTag
}

// taken reports whether a port has the place.
func (s *seat) taken() bool { return s.Name != "" }

// seatKey is what a PortID stays with.
type seatKey struct {
	name string
	kind PortKind
}

// seats gives ports their PortIDs, and uplinks their LBTags.
type seats struct {
	ports ids.Table[seatKey]
	tags  ids.Table[string]
}

func newSeats(room int) seats {
	return seats{ids.New[seatKey](room, portRest), ids.New[string](MaxPaths, portRest)}
}

// inherit gives uplinks the LBTags that they had in another process; those of "" rest.
func (s *seats) inherit(uplinks []string, now time.Time) {
	s.tags.Begin()
	for tag, name := range uplinks {
		if name == "" {
			name = fmt.Sprintf("LBTag %d of nobody", tag) // no interface has a blank in its name
		}
		s.tags.Get(name, now)
	}
	s.tags.End(now)
}

// clone returns a copy, to try a layout with.
func (s *seats) clone() seats { return seats{s.ports.Clone(), s.tags.Clone()} }

// NoRoomError says that a node has no number for one more port.
type NoRoomError struct {
	Port string
	What string        // what there is no room for
	Wait time.Duration // until a number that rests is free; 0: until a port goes
}

func (e *NoRoomError) Error() string {
	text := fmt.Sprintf("no room for port %s: %s", e.Port, e.What)
	if e.Wait > 0 {
		text += fmt.Sprintf("; the number of a port that is gone is free in %v", e.Wait.Round(time.Second))
	}
	return text
}

// arrange returns the layout of these ports. A port that was there lately has the
// numbers that it had.
func (s *seats) arrange(role Role, ports []PortConfig, now time.Time) (*layout, error) {
	if err := checkPorts(role, ports); err != nil {
		return nil, err
	}
	s.ports.Begin()
	s.tags.Begin()
	l := &layout{}
	for _, stays := range []bool{true, false} { // whoever has a number keeps it
		for i := range ports {
			if known := s.known(&ports[i]); known != stays {
				continue
			}
			if err := s.place(l, &ports[i], now); err != nil {
				return nil, err
			}
		}
	}
	s.ports.End(now)
	s.tags.End(now)
	l.ports = grow(l.ports, s.ports.Len()) // tables of before may name them all
	for i := range ports {
		if ports[i].Kind == Uplink {
			l.order = append(l.order, l.ports[l.find(ports[i].Name, Uplink)].tag)
		}
	}
	return l, nil
}

// known reports whether a port has, or lately had, a PortID.
func (s *seats) known(p *PortConfig) bool {
	for i := range s.ports.Len() {
		if s.ports.Key(i) == (seatKey{p.Name, p.Kind}) {
			return true
		}
	}
	return false
}

// place gives a port its place in l.
func (s *seats) place(l *layout, p *PortConfig, now time.Time) error {
	id, ok := s.ports.Get(seatKey{p.Name, p.Kind}, now)
	if !ok {
		wait, _ := s.ports.Wait(now)
		return &NoRoomError{p.Name, "all places are taken (max_ports)", wait}
	}
	for id >= len(l.ports) {
		l.ports = append(l.ports, seat{})
	}
	l.ports[id] = seat{PortConfig: *p}
	if p.Kind != Uplink {
		return nil
	}
	tag, ok := s.tags.Get(p.Name, now)
	if !ok {
		wait, _ := s.tags.Wait(now)
		return &NoRoomError{p.Name, fmt.Sprintf("all %d LBTags are taken", MaxPaths), wait}
	}
	for tag >= len(l.uplinks) {
		l.uplinks = append(l.uplinks, NoPort)
	}
	l.ports[id].tag, l.uplinks[tag] = uint8(tag), PortID(id)
	return nil
}

// checkPorts reports ports that a node cannot have.
func checkPorts(role Role, ports []PortConfig) error {
	if len(ports) > MaxPorts {
		return fmt.Errorf("%d ports: at most %d are possible", len(ports), MaxPorts)
	}
	uplinks := 0
	for i := range ports {
		p := &ports[i]
		switch {
		case p.Name == "":
			return fmt.Errorf("port %d has no name", i)
		case (p.Kind == SpinePort) != (role == Spine):
			return fmt.Errorf("port %s is of kind %v, which is not one of this node's", p.Name, p.Kind)
		case slices.ContainsFunc(ports[:i], func(q PortConfig) bool { return q.Name == p.Name }):
			return fmt.Errorf("port %s is there twice", p.Name)
		case p.Kind == Uplink:
			uplinks++
		}
	}
	if uplinks > MaxPaths {
		return fmt.Errorf("%d uplinks: at most %d are possible, an LBTag has 4 bits", uplinks, MaxPaths)
	}
	return nil
}

// find returns the PortID of a port; -1: it has none.
func (l *layout) find(name string, kind PortKind) int {
	return slices.IndexFunc(l.ports, func(s seat) bool { return s.Name == name && s.Kind == kind })
}

// has reports whether a port of that kind has a PortID.
func (l *layout) has(id PortID, kind PortKind) bool {
	return int(id) < len(l.ports) && l.ports[id].taken() && l.ports[id].Kind == kind
}

// name returns a port's interface; "": nobody has that PortID.
func (l *layout) name(id PortID) string {
	if int(id) >= len(l.ports) {
		return ""
	}
	return l.ports[id].Name
}

// uplinkName returns an uplink's interface; "": nobody has that LBTag.
func (l *layout) uplinkName(tag uint8) string {
	if int(tag) >= len(l.uplinks) || l.uplinks[tag] == NoPort {
		return ""
	}
	return l.name(l.uplinks[tag])
}

// tags returns the LBTags that uplinks have, as bits.
func (l *layout) tags() (bits uint16) {
	for _, tag := range l.order {
		bits |= 1 << tag
	}
	return bits
}

// configs returns the ports by PortID, those that nobody has without a name.
func (l *layout) configs() []PortConfig {
	all := make([]PortConfig, len(l.ports))
	for i := range l.ports {
		all[i] = l.ports[i].PortConfig
	}
	return all
}
