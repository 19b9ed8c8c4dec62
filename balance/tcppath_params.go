package balance

import (
	"fmt"
	"time"

	"github.com/loomfabric/loom/internal/flowtable"
	"github.com/loomfabric/loom/internal/units"
)

var tcpPathSection = &Section{
	Name: "tcp_path",
	Summary: "TCPPath are the parameters of schemes tcp-path and tfe, and of what answers explorations. " +
		"They count on every leaf, whatever its own scheme: other leaves may explore.",
	New:        newTCPPathParams,
	Profiles:   []Profile{Datacenter, Lab},
	Reloadable: []string{"selectors"},
}

// TCPPathParams are the tunables of TCP-Path (Alvarez-Horcajo et al., 2020).
type TCPPathParams struct {
	// Lock is for how long a path that an exploration has found waits to be confirmed
	// (§III-B), 10 ms to 10 s. It should exceed every round trip, and hosts' first
	// retransmission of a SYN should come later, for that explores anew.
	Lock time.Duration `yaml:"lock"`
	// Age is the pause after which a flow's path is forgotten, from lock to 5 minutes
	// (§V-D: 10 s).
	Age time.Duration `yaml:"age"`
	// Flows is the number of entries of a leaf's table of flows, which its workers
	// share, of 16 bytes each: a power of two from 4 to 16777216. A flow for which
	// there is no room has the fallback.
	Flows int `yaml:"flows"`
	// Explorations is how many explorations a second each worker begins at most, and twice
	// as many as a hundredth of that at once; 0: any number. A host's SYN becomes as many
	// frames as there are paths, so that hosts could load the fabric with little; a flow
	// beyond the limit has the fallback.
	Explorations int             `yaml:"explorations"`
	Directed     TCPPathDirected `yaml:",inline"`
}

// TCPPathDirected says which paths an exploration tries.
type TCPPathDirected struct {
	// Selectors is the number of next hops that the next tier has, 1 to 16. An
	// exploration tries each of them behind each uplink.
	Selectors int `yaml:"selectors"`
}

func newTCPPathParams(Profile) Params {
	return &TCPPathParams{Lock: 500 * time.Millisecond, Age: 10 * time.Second, Flows: 64 << 10, Explorations: 50_000, Directed: TCPPathDirected{1}}
}

// Validate reports the first parameter that makes no sense.
func (p *TCPPathParams) Validate() error {
	switch {
	case p.Lock < 10*time.Millisecond || p.Lock > 10*time.Second:
		return fieldError("lock", "use 10ms to 10s", "lock is %v", p.Lock)
	case p.Age < p.Lock || p.Age > 5*time.Minute:
		return fieldError("age", "use a time from lock to 5m", "age is %v and lock is %v", p.Age, p.Lock)
	case p.Flows < flowtable.Ways || p.Flows > flowtable.MaxEntries || p.Flows&(p.Flows-1) != 0:
		return fieldError("flows", fmt.Sprintf("use a power of two from %d to %d", flowtable.Ways, flowtable.MaxEntries), "flow table of %d entries", p.Flows)
	case p.Explorations < 0 || p.Explorations > 1_000_000_000:
		return fieldError("explorations", "use 0 to 1000000000 a second", "%d explorations a second", p.Explorations)
	case p.Directed.Selectors < 1 || p.Directed.Selectors > maxSelectors:
		return fieldError("selectors", fmt.Sprintf("use 1 to %d: a PathID has 4 bits for them", maxSelectors), "%d selectors", p.Directed.Selectors)
	}
	return nil
}

// Selectors returns the number of choices that the next tier has.
func (p *TCPPathParams) Selectors() int { return p.Directed.Selectors }

// WithSelectors returns p with another number of choices of the next tier.
func (p *TCPPathParams) WithSelectors(n int) Params {
	c := *p
	c.Directed.Selectors = n
	return &c
}

// The fallbacks.
const (
	fallbackECMP    = "ecmp"
	fallbackARPPath = "arp-path"
)

// TCPPathKeys are what tcp-path is told beside its name.
type TCPPathKeys struct {
	// Fallback is how packets go that belong to no path: those of other protocols, and
	// of flows without an entry. With ecmp their hash decides. With arp-path all
	// packets between two hosts share the path that was fastest when the first one
	// explored (§V-B).
	Fallback string `yaml:"fallback"`
}

func newTCPPathKeys() Params { return &TCPPathKeys{Fallback: fallbackECMP} }

// Validate reports a fallback that does not exist.
func (k *TCPPathKeys) Validate() error {
	if k.Fallback != fallbackECMP && k.Fallback != fallbackARPPath {
		return fieldError("fallback", "use ecmp or arp-path", "fallback %q", k.Fallback)
	}
	return nil
}

// TFEKeys are what tfe is told beside its name.
type TFEKeys struct {
	TCPPathKeys `yaml:",inline"`
	// ElephantPorts is the range of TCP ports that hosts reserve for elephants (§V-B). A flow
	// is one if it has one of them at either end. Linux gives none of the default range
	// to connections that ask for no port (ip_local_port_range).
	ElephantPorts units.Ports `yaml:"elephant_ports"`
	// ElephantSize is the size above which hosts of the simulator and of the lab use these
	// ports (§IV: 10 MB). Real hosts decide for themselves.
	ElephantSize units.Size `yaml:"elephant_size"`
}

func newTFEKeys() Params {
	return &TFEKeys{TCPPathKeys{fallbackECMP}, units.Ports{First: 61000, Last: 65535}, 10_000_000}
}

// Validate reports what makes no sense.
func (k *TFEKeys) Validate() error {
	if k.ElephantPorts.Number() == 0 {
		return fieldError("elephant_ports", "use a range, as in 61000-65535", "a range without ports")
	}
	return k.TCPPathKeys.Validate()
}

// Reserves returns the source ports that a host uses for a flow of so many bytes; empty:
// any.
func (k *TFEKeys) Reserves(bytes uint64) units.Ports {
	if bytes > uint64(k.ElephantSize) {
		return k.ElephantPorts
	}
	return units.Ports{}
}
