package admin

import (
	"net/netip"
	"slices"

	"github.com/loomfabric/loom/dataplane"
)

// Parameters is the answer of /v1/parameters: what a node runs with, as far as it has to
// agree with the machine and with the other nodes. It holds no secrets.
type Parameters struct {
	PID     int    `json:"pid"`      // of the daemon, as it sees itself
	File    string `json:"file"`     // its configuration
	KeyFile string `json:"key_file"` // control_key_file; "": control packets are not sealed
	Metrics string `json:"metrics"`  // telemetry.listen
	Admin   string `json:"admin"`    // admin.listen

	VTEP  netip.Addr   `json:"vtep"`  // of a leaf
	Peers []netip.Addr `json:"peers"` // of a leaf
	VNIs  []VNI        `json:"vnis"`  // of a leaf

	Workers   int    `json:"workers"`
	Cores     []int  `json:"cores"` // of the workers; empty: they are not pinned
	Polling   string `json:"polling"`
	VXLANPort uint16 `json:"vxlan_port"`
	// Memory is what the workers' packet buffers take, bytes, which the kernel locks.
	Memory        uint64   `json:"memory"`
	FDBSize       int      `json:"fdb_size"`       // of a leaf
	KernelOverlay bool     `json:"kernel_overlay"` // the overlay is the kernel's
	FailOpen      []string `json:"fail_open"`      // access ports that the kernel takes over

	// Fabric are parameters, by key, that all leaves and spines have to have alike, and Leaf
	// those that all leaves have to.
	Fabric map[string]string `json:"fabric"`
	Leaf   map[string]string `json:"leaf"`
}

// VNI is a virtual network of a leaf.
type VNI struct {
	VNI   uint32       `json:"vni"`
	Flood []netip.Addr `json:"flood"` // leaves that copies for all go to
}

// Rings is the answer of /v1/rings: what the kernel counted for the ports' sockets, and what
// the XDP programs did.
type Rings struct {
	Ports []Ring `json:"ports"`
}

// Ring is one port's, all workers together. Sockets has the names of loom_xsk metrics.
type Ring struct {
	Port       string            `json:"port"`
	Sockets    Counters          `json:"sockets"`
	Classifier map[string]uint64 `json:"classifier"` // frames by the XDP program's verdict
}

func rings(configs []dataplane.PortConfig, st *dataplane.Stats) Rings {
	all, counted := []Ring{}, st.Sum().Ports
	for i := range configs {
		if configs[i].Name == "" {
			continue // nobody's place
		}
		sum := at(counted, i)
		all = append(all, Ring{configs[i].Name, NewCounters("", &sum.SocketStats), orNone(at(st.Ports, i).Classifier)})
	}
	return Rings{all}
}

// orNone makes a family that JSON does not write as null.
func orNone(m map[string]uint64) map[string]uint64 {
	if m == nil {
		m = map[string]uint64{}
	}
	return m
}

// withTables completes what a node's file says by what its tables do.
func (p Parameters) withTables(t *dataplane.Tables) Parameters {
	p.Peers, p.VNIs = []netip.Addr{}, []VNI{}
	p.Cores, p.FailOpen = orEmpty(p.Cores), orEmpty(p.FailOpen)
	if t == nil {
		return p
	}
	for i := range t.Peers {
		if v := t.Peers[i].VTEP; v.IsValid() {
			p.Peers = append(p.Peers, v)
		}
	}
	for i := range t.VNIs {
		n := VNI{uint32(t.VNIs[i].VNI), []netip.Addr{}}
		for _, to := range t.VNIs[i].Flood {
			n.Flood = append(n.Flood, t.Peers[to].VTEP)
		}
		if n.VNI != 0 {
			p.VNIs = append(p.VNIs, n)
		}
	}
	return p
}

// Endpoints returns the names of what a node answers without being told more, by which
// [Client] asks for it.
func Endpoints(leaf bool) (names []string) {
	for i := range endpoints {
		if e := &endpoints[i]; (leaf || !e.leaf) && !slices.Contains(needTables, e.path) {
			names = append(names, e.path)
		}
	}
	return names
}
