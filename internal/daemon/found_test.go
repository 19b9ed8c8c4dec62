package daemon

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/loomfabric/loom/dataplane"
)

const autoLeaf = "vtep: 10.255.0.1\nuplinks: auto\naccess: [{interface: acc0, vni: 100}]\nvnis: [{vni: 100}]\n"

func portsOf(ports []dataplane.PortConfig) (names []string) {
	for _, p := range ports {
		names = append(names, p.Name+" "+p.Kind.String())
	}
	return names
}

// Ports that routes lead over are put in force, stay over a reload, and are refused
// without harm.
func TestFoundPorts(t *testing.T) {
	r, p := newReloader(t, Leaf, autoLeaf)
	want := func(when string, ports ...string) {
		t.Helper()
		if got := portsOf(p.ports); !slices.Equal(got, ports) || !slices.Equal(portsOf(r.now.Load().dp.Ports), ports) {
			t.Errorf("%s: ports %q, and %q in force, want %q", when, portsOf(r.now.Load().dp.Ports), got, ports)
		}
	}
	want("start", "acc0 access")
	r.takeFound(t.Context(), []string{"up0", "acc0", "up1"}) // an access port stays one
	want("found", "up0 uplink", "up1 uplink", "acc0 access")
	if p.ports[0].Egress.QueueBytes == 0 || !p.ports[0].Optional {
		t.Errorf("an uplink without an uplink's defaults: %+v", p.ports[0])
	}
	calls := len(p.calls)
	r.takeFound(t.Context(), []string{"up0", "up1"})
	if len(p.calls) != calls {
		t.Errorf("nothing has changed, and there were calls %v", p.calls[calls:])
	}
	r.write(t, autoLeaf+"log: {level: debug}\n")
	if changed, err := r.reload(t.Context()); !changed || err != nil {
		t.Errorf("reload: changed %v, error %v", changed, err)
	}
	want("reloaded", "up0 uplink", "up1 uplink", "acc0 access")
	p.refuses["tables"] = errors.New("no")
	r.takeFound(t.Context(), []string{"up2"})
	delete(p.refuses, "tables")
	want("refused", "up0 uplink", "up1 uplink", "acc0 access")
	r.write(t, strings.Replace(autoLeaf, "auto", "[{interface: up0}]", 1))
	if _, err := r.reload(t.Context()); err == nil || !strings.Contains(err.Error(), "uplinks of") {
		t.Errorf("from auto to a list: error %v", err)
	}

	s, p := newReloader(t, Spine, "vteps: any\n")
	s.takeFound(t.Context(), []string{"dn0"})
	if got := portsOf(p.ports); !slices.Equal(got, []string{"dn0 spine"}) {
		t.Errorf("a spine's ports are %q", got)
	}
	if n := s.now.Load(); n.dp.Remotes != nil || n.finder() == nil {
		t.Errorf("spine: prefixes %v, finder %v", n.dp.Remotes, n.finder())
	}
	listed, q := newReloader(t, Spine, "vteps: [10.255.0.0/24]\nports: [{interface: dn0}]\n")
	if listed.takeFound(t.Context(), []string{"dn1"}); len(q.calls) != 0 || listed.now.Load().finder() != nil {
		t.Errorf("a list is overruled: %v", q.calls)
	}
}

// The reloader sees the newest ports alone.
func TestOfferKeepsTheNewest(t *testing.T) {
	r := &reloader{found: make(chan []string, 1)}
	r.offer([]string{"up0"})
	r.offer([]string{"up1"})
	if got := <-r.found; !slices.Equal(got, []string{"up1"}) {
		t.Errorf("%q", got)
	}
}
