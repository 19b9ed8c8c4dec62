package lab

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/config/fabric"
	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/yamlfile"
)

// TestGeneratedConfigs: what the lab writes for leafd and spined is what they
// accept, for every shipped fabric, and means what the fabric file says.
func TestGeneratedConfigs(t *testing.T) {
	files, err := filepath.Glob("../test/netns/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, file := range files {
		f, err := fabric.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		l := New(f)
		for _, n := range l.Topo.Leaves {
			text, err := yamlfile.Marshal(l.leafConfig(n))
			if err != nil {
				t.Fatal(err)
			}
			c, err := config.ParseLeaf(n.Name, text, l.interfaces(n, true))
			if err != nil {
				t.Fatalf("%s: %s: %v\n%s", file, n.Name, err, text)
			}
			checkLeaf(t, l, n, c, c.ToDataplane())
		}
		for _, n := range l.Topo.Spines {
			text, err := yamlfile.Marshal(l.spineConfig(n))
			if err != nil {
				t.Fatal(err)
			}
			c, err := config.ParseSpine(n.Name, text, l.interfaces(n, false))
			if err != nil {
				t.Fatalf("%s: %s: %v\n%s", file, n.Name, err, text)
			}
			if d := c.ToDataplane(); len(d.Remotes) != len(l.Topo.Leaves) || d.Polling != dataplane.Interrupt {
				t.Errorf("%s: %s: %+v", file, n.Name, d)
			} else if d.Congestion != f.Congestion.CONGA() {
				t.Errorf("%s: %s: CONGA's parameters are %+v", file, n.Name, d.Congestion)
			}
		}
	}
}

// A scheme for every tier is that of spines, too, with what it is told; others are not.
func TestSpinesHaveTheSchemeOfEveryTier(t *testing.T) {
	for _, x := range []struct{ scheme, want string }{
		{"caar\ncaar: {slot: 3ms}", "caar"}, {"drill\ndrill: {samples: 3}", "drill"}, {"conga", ""}, {"plb\nplb: {round: 3ms}", ""},
	} {
		f, err := fabric.Parse("x.yaml", []byte("name: x\nleaves: 2\nspines: 2\nhosts: {per_leaf: 1}\nvnis: [{vni: 1}]\nscheme: "+x.scheme+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		l := New(f)
		n := l.Topo.Spines[0]
		text, err := yamlfile.Marshal(l.spineConfig(n))
		if err != nil {
			t.Fatal(err)
		}
		c, err := config.ParseSpine(n.Name, text, l.interfaces(n, false))
		if err != nil {
			t.Fatalf("%s: %v\n%s", x.scheme, err, text)
		}
		d := c.ToDataplane()
		if d.Scheme != x.want {
			t.Errorf("%s: spines have scheme %q", x.scheme, d.Scheme)
		}
		if p, ok := d.Sections["caar"].(*balance.CAARParams); d.Scheme == "caar" && (!ok || p.Slot != 3*time.Millisecond) {
			t.Errorf("spines are told %+v", d.Sections)
		}
		if k, ok := d.Options.Keys.(*balance.DRILLKeys); d.Scheme == "drill" && (!ok || k.DRILL.Samples != 3) {
			t.Errorf("spines are told %+v", d.Options.Keys)
		}
	}
}

// interfaces lists the fabric's interfaces of a node.
func (l *Lab) interfaces(n fabric.Node, leaf bool) (out []string) {
	for _, k := range l.Topo.Links {
		switch {
		case leaf && k.Leaf == n.Index:
			out = append(out, k.LeafPort)
		case !leaf && k.Spine == n.Index:
			out = append(out, k.SpinePort)
		}
	}
	for _, h := range l.Topo.Hosts {
		if leaf && h.Leaf == n.Index {
			out = append(out, h.Port)
		}
	}
	return out
}

func checkLeaf(t *testing.T, l *Lab, n fabric.Node, file *config.Leaf, d dataplane.Config) {
	t.Helper()
	if d.VTEP != n.VTEP || d.Polling != dataplane.Interrupt {
		t.Errorf("%s: VTEP %s, polling %v", n.Name, d.VTEP, d.Polling)
	}
	if d.Congestion != l.File.Congestion.CONGA() || d.Scheme != l.File.Scheme {
		t.Errorf("%s: scheme %s, CONGA's parameters %+v", n.Name, d.Scheme, d.Congestion)
	}
	ports := map[string]dataplane.PortConfig{}
	for _, p := range d.Ports {
		ports[p.Name] = p
	}
	access := map[string]config.Access{}
	for _, a := range file.Access {
		access[a.Interface] = a
	}
	egress := func(name string, p vocab.Link) {
		e := ports[name].Egress
		if e.Rate != uint64(p.Rate) || e.QueueBytes != uint32(p.Queue) || e.Delay != p.Delay {
			t.Errorf("%s: %s has egress %+v, want %+v", n.Name, name, e, p)
		}
		if e.Kmin != uint32(p.ECN.Kmin) || e.Kmax != uint32(p.ECN.Kmax) || e.Pmax != p.ECN.Pmax {
			t.Errorf("%s: %s marks by %+v, want %+v", n.Name, name, e, p.ECN)
		}
	}
	for _, k := range l.Topo.Links {
		if k.Leaf == n.Index {
			egress(k.LeafPort, k.Up)
		}
	}
	for _, h := range l.Topo.Hosts {
		if h.Leaf != n.Index {
			continue
		}
		egress(h.Port, h.Access)
		a := access[h.Port]
		if h.VLAN == 0 && a.VNI != h.VNI || h.VLAN != 0 && (a.VLANs[h.VLAN] != h.VNI || a.VNI != 0) {
			t.Errorf("%s: %s is bound to %v and %v, want VNI %d, VLAN %d", n.Name, h.Port, a.VNI, a.VLANs, h.VNI, h.VLAN)
		}
	}
}
