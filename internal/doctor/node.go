package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/admin"
)

// Node is what is known of a node.
type Node struct {
	Name   string
	Socket string // of the admin API, on this machine; "": elsewhere
	Asker  Asker  // that it was asked by

	Status     admin.Status
	Parameters admin.Parameters
	Config     admin.ConfigDiff
	Ports      []admin.Port
	Later      []admin.Port          // at the second look
	Between    time.Duration         // from the first look at the ports to the second
	Routes     []admin.Route         // of a spine: to leaves' VTEPs, by way of ports that are up
	Peers      []admin.Peer          // of a leaf
	Paths      []dataplane.PeerPaths // of a leaf
	Stats      [2]admin.Stats        // one look after the other
	Rings      [2]admin.Rings

	Machine *Machine // nil: it could not be looked at
	Why     string   // why not
}

func (n *Node) leaf() bool { return n.Status.Role == "leafd" }

// Look asks a node for all that probes need. The error is that of a node which does not
// answer; what cannot be found out of its machine is no error.
func Look(ctx context.Context, t *Target, interval time.Duration) (*Node, error) {
	n := &Node{Name: t.Name, Socket: t.Socket, Asker: t.Asker}
	if err := ask(ctx, t.Asker, "status", &n.Status); err != nil {
		return nil, err
	}
	n.Name = n.Status.Name
	ports, routes, peers, paths := [2]admin.Ports{}, admin.Routes{}, admin.Peers{}, admin.Paths{}
	questions := map[string]any{"parameters": &n.Parameters, "config": &n.Config}
	if n.leaf() {
		questions["peers"], questions["paths"] = &peers, &paths
	} else {
		questions["routes"] = &routes
	}
	first := time.Now()
	var counted [2]time.Time
	for i := range n.Stats {
		questions["stats"], questions["rings"] = &n.Stats[i], &n.Rings[i]
		counted[i] = time.Now()
		if err := ask(ctx, t.Asker, "ports", &ports[i]); err != nil {
			return nil, err
		}
		for what, answer := range questions {
			if err := ask(ctx, t.Asker, what, answer); err != nil {
				return nil, err
			}
		}
		if i > 0 {
			break
		}
		questions = map[string]any{}
		n.lookAtMachine()
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(interval - time.Since(first)):
		}
	}
	n.Ports, n.Later, n.Between = ports[0].Ports, ports[1].Ports, counted[1].Sub(counted[0])
	n.Routes, n.Peers, n.Paths = routes.Routes, peers.Peers, paths.Peers
	if n.Machine != nil {
		n.Machine.countAgain(n)
	}
	return n, nil
}

// ask asks a node for one answer.
func ask(ctx context.Context, a Asker, what string, answer any) error {
	raw, err := a.Get(ctx, what, url.Values{})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if err := json.Unmarshal(raw, answer); err != nil {
		return fmt.Errorf("understand the answer to %s: %w; is loomctl of the same version as the daemon?", what, err)
	}
	return nil
}

// port returns a port by its interface; nil: there is none.
func (n *Node) port(name string) *admin.Port {
	for i := range n.Ports {
		if n.Ports[i].Port == name {
			return &n.Ports[i]
		}
	}
	return nil
}

// towards reports whether a port faces the fabric.
func towards(p *admin.Port) bool { return p.Kind != "access" }

// uplinks returns the names of the ports towards the fabric that are up and open.
func (n *Node) uplinks() (names []string) {
	for i := range n.Ports {
		if p := &n.Ports[i]; towards(p) && p.Up && p.Open {
			names = append(names, p.Port)
		}
	}
	return names
}

// rising returns by how much a drop's reason rose between the looks.
func (n *Node) rising(reason string) uint64 {
	return n.Stats[1].Drops[reason] - min(n.Stats[0].Drops[reason], n.Stats[1].Drops[reason])
}

// ringRises returns, for each port, by how much the numbers of that name rose together.
func (n *Node) ringRises(names ...string) map[string]uint64 {
	rises := make(map[string]uint64)
	for i := range n.Rings[1].Ports {
		now := &n.Rings[1].Ports[i]
		for k := range n.Rings[0].Ports {
			was := &n.Rings[0].Ports[k]
			if was.Port != now.Port {
				continue
			}
			for _, name := range names {
				a, b := was.Sockets.Number(name)+was.Classifier[name], now.Sockets.Number(name)+now.Classifier[name]
				if b > a {
					rises[now.Port] += b - a
				}
			}
		}
	}
	return rises
}

// command is a command line to type: in the node's network namespace, if that has a name.
func (n *Node) command(format string, args ...any) string {
	c := fmt.Sprintf(format, args...)
	if n.Machine == nil || n.Machine.Namespace == "" {
		return c
	}
	if rest, ok := strings.CutPrefix(c, "ip "); ok {
		return "ip -n " + n.Machine.Namespace + " " + rest
	}
	return "ip netns exec " + n.Machine.Namespace + " " + c
}

// loomctl is a command line that asks the node.
func (n *Node) loomctl(args string) string {
	if n.Socket == "" {
		return "loomctl " + args
	}
	return "loomctl --socket " + n.Socket + " " + args
}

// reload has the daemon read its file again.
func (n *Node) reload() string {
	if n.Machine != nil && n.Machine.Unit != "" {
		return "systemctl reload " + n.Machine.Unit
	}
	return fmt.Sprintf("kill -HUP %d", n.Parameters.PID)
}

// restart starts the daemon anew.
func (n *Node) restart() string {
	if n.Machine != nil && n.Machine.Unit != "" {
		return "systemctl restart " + n.Machine.Unit
	}
	return "restart " + n.Status.Role
}
