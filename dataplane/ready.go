package dataplane

import "cmp"

// Names of reasons for which a node is not ready. They are part of /readyz and of
// /v1/status: add, never rename.
const (
	ReasonNoTables   = "no_tables"
	ReasonNoVTEP     = "no_vtep"
	ReasonPortClosed = "port_closed"
)

// Reason is one thing for which a node is not ready.
type Reason struct {
	// Name is "no_tables" (the kernel's state has not been read yet), "no_vtep" (the
	// VTEP is no address of the machine) or "port_closed".
	Name   string `json:"name"`
	Port   string `json:"port,omitempty"`
	Detail string `json:"detail"`

	optional bool // the node does without the port
}

// String is the reason in a log.
func (r Reason) String() string {
	if r.Port == "" {
		return r.Name + ": " + r.Detail
	}
	return r.Name + " " + r.Port + ": " + r.Detail
}

// Forwards reports whether the node forwards all the same. Others should rather not
// send to it, but its start is over.
func (r Reason) Forwards() bool { return r.Name == ReasonNoVTEP || r.optional }

// Unready returns why a node with these ports, by PortID, is not ready; empty: it is. Links
// that are down do not count, nor access ports' interfaces that may be absent and are: the
// node does what can be done then. t is nil before tables were published.
func Unready(ports []PortConfig, infos []PortInfo, t *Tables) []Reason {
	reasons := []Reason{}
	switch {
	case t == nil:
		reasons = append(reasons, Reason{Name: ReasonNoTables, Detail: "no tables have been published to the workers yet"})
	case t.NoVTEP:
		reasons = append(reasons, Reason{Name: ReasonNoVTEP, Detail: "the VTEP is no address of this machine: add it to lo"})
	}
	for i := range ports {
		if ports[i].Name == "" {
			continue // nobody's place
		}
		var info PortInfo
		if i < len(infos) {
			info = infos[i]
		}
		absent := t != nil && ports[i].Optional && ports[i].Kind == Access && (i >= len(t.Ports) || t.Ports[i].Ifindex == 0)
		if !info.Open && !absent {
			reasons = append(reasons, Reason{Name: ReasonPortClosed, Port: ports[i].Name, Detail: cmp.Or(info.Error, "its sockets are not bound"), optional: ports[i].Optional})
		}
	}
	return reasons
}
