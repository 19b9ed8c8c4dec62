package config

import (
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// conweaveLeaf is a leaf with these lines added.
func conweaveLeaf(t *testing.T, lines string) (*Leaf, error) {
	t.Helper()
	return ParseLeaf("leaf.yaml", []byte(`vtep: 10.255.0.1
uplinks: [{interface: up0}, {interface: up1}]
access: [{interface: acc0, vni: 100}]
vnis: [{vni: 100}]
`+lines), nil)
}

// What the file says, what the profile says, and which of them counts.
func TestConWeaveParams(t *testing.T) {
	lab := func(change func(*balance.ConWeaveParams, *reorder.Params)) (balance.ConWeaveParams, reorder.Params) {
		s, d := balance.LabConWeave(), reorder.Lab()
		change(&s, &d)
		return s, d
	}
	same := func(*balance.ConWeaveParams, *reorder.Params) {}
	for _, tt := range []struct {
		name, lines string
		change      func(*balance.ConWeaveParams, *reorder.Params)
		auto        dataplane.Auto
	}{
		{"as CONGA's profile", "congestion: {profile: lab}\n", same, dataplane.Auto{}},
		{"a profile of its own", "conweave: {profile: lab}\n", same, dataplane.Auto{}},
		{"the paper's", "", func(s *balance.ConWeaveParams, d *reorder.Params) {
			*s, *d = balance.DatacenterConWeave(), reorder.Datacenter()
		}, dataplane.Auto{}},
		{"times", "conweave: {profile: lab, reply: 2ms, path_busy: 3ms, inactive: 11ms, resume_extra: 4ms, resume_default: 6ms, max_hold: 30ms, notify_interval: 1ms}\n",
			func(s *balance.ConWeaveParams, d *reorder.Params) {
				s.Reply, s.PathBusy, s.Inactive, d.Inactive = 2e6, 3e6, 11e6, 11e6
				d.ResumeExtra, d.ResumeDefault, d.MaxHold, d.NotifyInterval = 4e6, 6e6, 30e6, 1e6
			}, dataplane.Auto{}},
		{"numbers", "conweave: {profile: lab, samples: 3, selectors: 4, connections: 1024, flows: 2048, queues: 500, port_queues: 7, packets: 600, port_packets: 70, bytes: 1MB, port_bytes: 100KB, admission: 80}\n",
			func(s *balance.ConWeaveParams, d *reorder.Params) {
				s.Samples, s.Selectors, s.Connections = 3, 4, 1024
				d.Flows, d.Queues, d.PortQueues, d.Packets, d.PortPackets, d.Admission = 2048, 500, 7, 600, 70, 80
				d.Bytes, d.PortBytes = 1e6, 1e5
			}, dataplane.Auto{}},
		{"auto", "congestion: {profile: lab}\nconweave: {profile: auto}\n",
			func(_ *balance.ConWeaveParams, d *reorder.Params) { d.Inactive = overlay.MaxInactive },
			dataplane.Auto{Reply: true, Inactive: true, ResumeExtra: true, ResumeDefault: true, MaxHold: true}},
		{"auto beside the paper's: derived times start from the lab's", "conweave: {profile: auto}\n",
			func(s *balance.ConWeaveParams, d *reorder.Params) {
				*s, *d = balance.DatacenterConWeave(), reorder.Datacenter()
				s.Reply, s.Inactive, d.Inactive = 1e6, 10e6, overlay.MaxInactive
				d.ResumeExtra, d.ResumeDefault, d.MaxHold = 1e6, 5e6, 20e6
			}, dataplane.Auto{Reply: true, Inactive: true, ResumeExtra: true, ResumeDefault: true, MaxHold: true}},
		{"auto within what is given", "conweave: {profile: auto, inactive: 300us, max_hold: 700us}\n",
			func(s *balance.ConWeaveParams, d *reorder.Params) {
				*s, *d = balance.DatacenterConWeave(), reorder.Datacenter()
				s.Reply, d.MaxHold, d.ResumeExtra, d.ResumeDefault = 300e3, 700e3, 700e3, 700e3
			}, dataplane.Auto{Reply: true, ResumeExtra: true, ResumeDefault: true}},
		{"auto but for some", "congestion: {profile: lab, flowlet_gap: auto}\nconweave: {profile: auto, reply: 2ms, inactive: 10ms, max_hold: 40ms}\n",
			func(s *balance.ConWeaveParams, d *reorder.Params) { s.Reply, d.MaxHold = 2e6, 40e6 },
			dataplane.Auto{ResumeExtra: true, ResumeDefault: true, FlowletGap: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, err := conweaveLeaf(t, "scheme: conweave\nclasses: [{match: {protocol: tcp}, scheme: conweave-conga}, {match: {protocol: udp}, scheme: ecmp}]\n"+tt.lines)
			if err != nil {
				t.Fatal(err)
			}
			c := l.ToDataplane()
			s, d := lab(tt.change)
			if c.Options.ConWeave != s || c.Classes[0].Options.ConWeave != s || c.Classes[1].Options.ConWeave != (balance.ConWeaveParams{}) {
				t.Errorf("sources are told %+v and %+v, want %+v", c.Options.ConWeave, c.Classes[0].Options.ConWeave, s)
			}
			if c.Reorder != d {
				t.Errorf("the destination is told %+v, want %+v", c.Reorder, d)
			}
			if c.Auto != tt.auto {
				t.Errorf("derived are %+v, want %+v", c.Auto, tt.auto)
			}
			if err := s.Validate(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestConWeaveMistakes(t *testing.T) {
	for _, tt := range []struct{ lines, at, problem, fix string }{
		{"conweave: {profile: fast}\n", ":5:21:", `profile "fast" does not exist`, "datacenter, lab or auto"},
		{"conweave: {inactive: 31ms}\n", ":5:22:", "inactive is 31ms", "to 30ms"},
		{"conweave: {reply: 10ns}\n", ":5:19:", "reply is 10ns", "use 1us"},
		{"conweave: {reply: 1ms}\n", ":5:19:", "reply 1ms is above inactive 300µs", "lower reply, or raise inactive"},
		{"conweave: {profile: lab, max_hold: 2ms}\n", ":5:36:", "resume_default 5ms is above max_hold 2ms", "raise max_hold"},
		{"conweave: {connections: 1000}\n", ":5:25:", "connections is 1000", "a power of two from 4"},
		{"conweave: {samples: 17}\n", ":5:21:", "samples is 17", "use 1 to 16"},
		{"conweave: {selectors: 0}\n", ":5:23:", "selectors is 0", "use 1 to 16"},
		{"conweave: {queues: 65536}\n", ":5:20:", "queues is 65536", "to 65535"},
		{"conweave: {admission: 101}\n", ":5:23:", "admission at 101 percent", "1 to 100"},
		{"conweave: {answer: 1ms}\n", ":5:12:", `unknown key "answer"`, "the keys here"},
		{"congestion: {flowlet_gap: often}\n", ":5:27:", "often", ""},
	} {
		_, err := conweaveLeaf(t, tt.lines)
		if err == nil {
			t.Errorf("%q is accepted", tt.lines)
			continue
		}
		for _, part := range []string{tt.at, tt.problem, tt.fix} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q: %q is not in %q", tt.lines, part, err)
			}
		}
		if strings.Count(err.Error(), "fix: ") != 1 {
			t.Errorf("%q: more than one mistake is reported: %v", tt.lines, err)
		}
	}
}

// Of ConWeave's keys, those of the source side can change in a running leaf.
func TestConWeaveReload(t *testing.T) {
	base := "scheme: conweave\nconweave: {profile: lab, reply: 2ms, connections: 1024, queues: 100}\n"
	old, err := conweaveLeaf(t, base)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ from, to, keys string }{
		{"reply: 2ms", "reply: 3ms", ""},
		{"reply: 2ms", "reply: 2ms, path_busy: 4ms, samples: 3, selectors: 2", ""},
		{"connections: 1024", "connections: 2048", ""},
		{"queues: 100", "queues: 200", "conweave.queues"},
		{"reply: 2ms", "reply: 2ms, inactive: 9ms", "conweave.inactive"},
		{"reply: 2ms", "reply: 2ms, resume_extra: 3ms", "conweave.resume_extra"},
	} {
		changed, err := conweaveLeaf(t, strings.Replace(base, tt.from, tt.to, 1))
		if err != nil {
			t.Fatal(err)
		}
		if keys := strings.Join(NeedsRestart(old, changed), " "); keys != tt.keys {
			t.Errorf("%s to %s: %q need a restart, want %q", tt.from, tt.to, keys, tt.keys)
		}
	}
	// A time that is given and one that is only to start with need not fit.
	auto, err := conweaveLeaf(t, strings.Replace(base, "lab", "auto", 1))
	if err != nil {
		t.Fatal(err)
	}
	if keys := strings.Join(NeedsRestart(old, auto), " "); !strings.Contains(keys, "conweave.profile") {
		t.Errorf("to profile auto: %q need a restart", keys)
	}
}

func TestGapIsATimeOrAuto(t *testing.T) {
	for text, want := range map[string]Gap{"auto": AutoGap, "6ms": Gap(6 * time.Millisecond)} {
		var g Gap
		if err := g.UnmarshalText([]byte(text)); err != nil || g != want {
			t.Errorf("%q is read as %v: %v", text, g, err)
		}
		if b, err := g.MarshalText(); err != nil || string(b) != text || g.String() != text {
			t.Errorf("%v is written as %q: %v", g, b, err)
		}
	}
}
