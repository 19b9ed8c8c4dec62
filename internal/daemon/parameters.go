package daemon

import (
	"fmt"
	"os"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/control"
	"github.com/loomfabric/loom/internal/admin"
	"github.com/loomfabric/loom/internal/yamlfile"
)

// parameters answers what the node runs with now, for the admin API.
func (r *reloader) parameters() admin.Parameters { return r.now.Load().parameters(r.file) }

func (n *node) parameters(file string) admin.Parameters {
	c := &n.dp
	p := admin.Parameters{
		PID: os.Getpid(), File: file, Metrics: n.common.Telemetry.Listen, Admin: n.common.Admin.Listen,
		Workers: c.Workers, Cores: c.Cores, Polling: text(n.common.Polling), VXLANPort: c.VXLANPort,
		Memory:        control.UMEMBytes(c),
		KernelOverlay: c.KernelOverlay,
		Fabric:        map[string]string{"vxlan_port": fmt.Sprint(c.VXLANPort)}, Leaf: map[string]string{},
	}
	for i := range c.Ports {
		if c.Ports[i].FailOpen {
			p.FailOpen = append(p.FailOpen, c.Ports[i].Name)
		}
	}
	flatten(p.Fabric, "congestion", yamlfile.Map(&c.Congestion))
	for _, name := range balance.Names() {
		if id := balance.Find(name).Wire; id != 0 {
			p.Fabric["wire."+name] = fmt.Sprint(id)
		}
	}
	if l := n.overlay(); l != nil {
		n.leafParameters(l, &p)
	}
	return p
}

// leafParameters adds what only a leaf has.
func (n *node) leafParameters(l *config.Leaf, p *admin.Parameters) {
	c := &n.dp
	p.VTEP, p.FDBSize, p.KeyFile = c.VTEP, c.FDBSize, l.ControlKeyFile
	p.Leaf["control_key_file"] = "none"
	if c.Keys != nil {
		p.Leaf["control_key_file"] = "given"
	}
	p.Leaf["scheme"] = c.Scheme
	for i := range l.Classes {
		// By what it matches: a leaf lacks classes of networks that it has no hosts of.
		x := &l.Classes[i]
		p.Leaf["scheme of class "+strings.Join(strings.Fields(text(yamlfile.Map(&x.Match))), " ")] = x.Scheme
	}
	for _, s := range balance.Sections() {
		if section := c.Sections[s.Name]; section != nil {
			flatten(p.Leaf, s.Name, yamlfile.Map(section))
		}
	}
}

// flatten writes the scalars of a map into all, by their paths.
func flatten(all map[string]string, path string, m yaml.MapSlice) {
	for _, item := range m {
		key := path + "." + fmt.Sprint(item.Key)
		if below, ok := item.Value.(yaml.MapSlice); ok {
			flatten(all, key, below)
			continue
		}
		all[key] = text(item.Value)
	}
}

// text is what a value says in a file.
func text(v any) string {
	b, err := yaml.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return strings.TrimSpace(string(b))
}
