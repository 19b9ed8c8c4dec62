package telemetry

import (
	"encoding/json"
	"net/http"
	"net/netip"

	"github.com/loomfabric/loom/control"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/drop"
)

// health says that the process answers.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok\n")) // the client is gone: nobody to tell
}

// Readiness is the answer of /readyz.
type Readiness struct {
	Ready   bool     `json:"ready"`
	Reasons []Reason `json:"reasons"` // why not; empty when ready
}

// Reason is one thing that a daemon is not ready for.
type Reason struct {
	// Name is "no_tables" (the kernel's state or the overlay's source has not been
	// read yet), or "port_closed".
	Name   string `json:"name"`
	Port   string `json:"port,omitempty"`
	Detail string `json:"detail"`
}

// String is the reason in a log.
func (r Reason) String() string {
	if r.Port == "" {
		return r.Name + ": " + r.Detail
	}
	return r.Name + " " + r.Port + ": " + r.Detail
}

// Readiness says whether the workers have tables and every port is open. Links
// that are down do not count: the daemon does what can be done then.
func (s *Server) Readiness() Readiness {
	reasons := []Reason{}
	if s.Tables() == nil {
		reasons = append(reasons, Reason{Name: "no_tables", Detail: "no tables have been published to the workers yet"})
	}
	st := s.Stats()
	for i := range s.Ports {
		p := at(st.Ports, i)
		if p.Open {
			continue
		}
		detail := p.Error
		if detail == "" {
			detail = "its sockets are not bound"
		}
		reasons = append(reasons, Reason{Name: "port_closed", Port: s.Ports[i].Name, Detail: detail})
	}
	return Readiness{Ready: len(reasons) == 0, Reasons: reasons}
}

func (s *Server) ready(w http.ResponseWriter, _ *http.Request) {
	r := s.Readiness()
	status := http.StatusOK
	if !r.Ready {
		status = http.StatusServiceUnavailable
	}
	s.writeJSON(w, status, r)
}

// Debug is the answer of /debug/stats: the fields of [dataplane.Stats] at the
// top, so that it can be read as one, and beside them what they add up to and
// the names that their indices stand for.
type Debug struct {
	Role    string `json:"role"`
	Version string `json:"version"`
	dataplane.Stats
	Tables  *DebugTables      `json:"tables"` // null before the first were published
	Balance []Balance         `json:"balance"`
	Drops   map[string]uint64 `json:"drops"` // by reason, of all ports and workers; none that is 0
	Control *control.Stats    `json:"control,omitempty"`
}

// DebugTables is the part of [dataplane.Tables] that names what is counted.
type DebugTables struct {
	Ports []DebugPort `json:"ports"` // by PortID
	Hops  []DebugHop  `json:"hops"`  // by HopID
	Peers []DebugPeer `json:"peers"` // by PeerID
	VNIs  []uint32    `json:"vnis"`  // by VNIIndex
}

// DebugPort is a port and what the kernel says of it.
type DebugPort struct {
	Name    string `json:"name"`
	Up      bool   `json:"up"`
	Ifindex int    `json:"ifindex"` // 0: the interface does not exist
	MTU     int    `json:"mtu"`
}

// DebugHop is a next hop. Gateway is not valid (empty) when it is gone.
type DebugHop struct {
	Port     string     `json:"port"`
	Gateway  netip.Addr `json:"gateway"`
	MAC      string     `json:"mac"`
	Resolved bool       `json:"resolved"`
}

// DebugPeer is a remote VTEP. VTEP is not valid (empty) when it is gone.
type DebugPeer struct {
	VTEP netip.Addr        `json:"vtep"`
	Hops []dataplane.HopID `json:"hops"`
}

// Balance is a worker's account.
type Balance struct {
	Worker int `json:"worker"`
	dataplane.Account
	OK bool `json:"ok"` // it adds up
}

func (s *Server) debug(w http.ResponseWriter, _ *http.Request) {
	st := s.Stats()
	d := Debug{
		Role: s.Role, Version: s.Version, Stats: st, Tables: s.debugTables(),
		Balance: balances(st.Workers), Drops: make(map[string]uint64),
	}
	for i := range st.Workers {
		for p := range st.Workers[i].Ports {
			for r, n := range st.Workers[i].Ports[p].Drops {
				if n > 0 {
					d.Drops[drop.Reason(r).String()] += n
				}
			}
		}
	}
	if s.Control != nil {
		c := s.Control()
		d.Control = &c
	}
	s.writeJSON(w, http.StatusOK, d)
}

func balances(workers []dataplane.WorkerStats) []Balance {
	out := make([]Balance, 0, len(workers))
	for i := range workers {
		a := workers[i].Account()
		out = append(out, Balance{i, a, a.Balances()})
	}
	return out
}

func (s *Server) debugTables() *DebugTables {
	t := s.Tables()
	if t == nil {
		return nil
	}
	d := &DebugTables{
		Ports: make([]DebugPort, 0, len(t.Ports)), Hops: make([]DebugHop, 0, len(t.Hops)),
		Peers: make([]DebugPeer, 0, len(t.Peers)), VNIs: make([]uint32, 0, len(t.VNIs)),
	}
	for i, p := range t.Ports {
		d.Ports = append(d.Ports, DebugPort{s.portName(dataplane.PortID(i)), p.Up, p.Ifindex, p.MTU})
	}
	for _, h := range t.Hops {
		d.Hops = append(d.Hops, DebugHop{s.portName(h.Port), h.Gateway, h.MAC.String(), h.Resolved})
	}
	for _, p := range t.Peers {
		d.Peers = append(d.Peers, DebugPeer{p.VTEP, append([]dataplane.HopID{}, p.Hops...)})
	}
	for _, v := range t.VNIs {
		d.VNIs = append(d.VNIs, uint32(v.VNI))
	}
	return d
}

func (s *Server) writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		s.Log.Error("encode answer", "error", err)
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // the client is gone: nobody to tell
}
