package config

import (
	"strings"
	"testing"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/leaf"
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
	all := balance.AutoTimes{Reply: true, Inactive: true, ResumeExtra: true, ResumeDefault: true, MaxHold: true}
	for _, tt := range []struct {
		name, lines string
		paper       bool
		change      func(*balance.ConWeaveSource, *reorder.Params)
		auto        balance.AutoTimes
		gap         bool
	}{
		{name: "as CONGA's profile", lines: "congestion: {profile: lab}\n"},
		{name: "a profile of its own", lines: "conweave: {profile: lab}\n"},
		{name: "the paper's", paper: true},
		{name: "times", lines: "conweave: {profile: lab, reply: 2ms, path_busy: 3ms, inactive: 11ms, resume_extra: 4ms, resume_default: 6ms, max_hold: 30ms, notify_interval: 1ms}\n",
			change: func(s *balance.ConWeaveSource, d *reorder.Params) {
				s.Reply, s.PathBusy, s.Inactive = 2e6, 3e6, 11e6
				d.ResumeExtra, d.ResumeDefault, d.MaxHold, d.NotifyInterval = 4e6, 6e6, 30e6, 1e6
			}},
		{name: "numbers", lines: "conweave: {profile: lab, samples: 3, selectors: 4, connections: 1024, flows: 2048, queues: 500, port_queues: 7, packets: 600, port_packets: 70, bytes: 1MB, port_bytes: 100KB, admission: 80}\n",
			change: func(s *balance.ConWeaveSource, d *reorder.Params) {
				s.Samples, s.Selectors, s.Connections = 3, 4, 1024
				d.Flows, d.Queues, d.PortQueues, d.Packets, d.PortPackets, d.Admission = 2048, 500, 7, 600, 70, 80
				d.Bytes, d.PortBytes = 1e6, 1e5
			}},
		{name: "auto", lines: "congestion: {profile: lab}\nconweave: {profile: auto}\n", auto: all},
		{name: "auto beside the paper's: derived times start from the lab's", lines: "conweave: {profile: auto}\n", auto: all, paper: true,
			change: func(s *balance.ConWeaveSource, d *reorder.Params) {
				s.Reply, s.Inactive = 1e6, 10e6
				d.ResumeExtra, d.ResumeDefault, d.MaxHold = 1e6, 5e6, 20e6
			}},
		{name: "auto within what is given", paper: true, lines: "conweave: {profile: auto, inactive: 300us, max_hold: 700us}\n",
			change: func(s *balance.ConWeaveSource, d *reorder.Params) {
				s.Inactive, s.Reply, d.MaxHold, d.ResumeExtra, d.ResumeDefault = 300e3, 300e3, 700e3, 700e3, 700e3
			}, auto: balance.AutoTimes{Reply: true, ResumeExtra: true, ResumeDefault: true}},
		{name: "auto but for some", lines: "congestion: {profile: lab, flowlet_gap: auto}\nconweave: {profile: auto, reply: 2ms, inactive: 10ms, max_hold: 40ms}\n",
			change: func(s *balance.ConWeaveSource, d *reorder.Params) { s.Reply, d.MaxHold = 2e6, 40e6 },
			auto:   balance.AutoTimes{ResumeExtra: true, ResumeDefault: true}, gap: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, err := conweaveLeaf(t, "scheme: conweave\nclasses: [{match: {protocol: tcp}, scheme: conweave-informed}, {match: {protocol: udp}, scheme: ecmp}]\n"+tt.lines)
			if err != nil {
				t.Fatal(err)
			}
			want := balance.ConWeaveParams{Source: balance.LabConWeave(), Destination: reorder.Lab(), Auto: tt.auto}
			if tt.paper {
				want.Source, want.Destination = balance.DatacenterConWeave(), reorder.Datacenter()
			}
			if tt.change != nil {
				tt.change(&want.Source, &want.Destination)
			}
			c := l.ToDataplane()
			for _, p := range []balance.Params{c.Options.Section, c.Classes[0].Options.Section, c.Sections["conweave"]} {
				if got := *p.(*balance.ConWeaveParams); got != want {
					t.Errorf("got  %+v\nwant %+v", got, want)
				}
			}
			if c.Classes[1].Options.Section != nil {
				t.Error("ecmp is told of ConWeave")
			}
			a := tt.auto
			if auto := (leaf.Auto{Reply: a.Reply, Inactive: a.Inactive, ResumeExtra: a.ResumeExtra, ResumeDefault: a.ResumeDefault, MaxHold: a.MaxHold, FlowletGap: tt.gap}); c.Auto != auto {
				t.Errorf("derived are %+v, want %+v", c.Auto, auto)
			}
			if err := want.Validate(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestConWeaveMistakes(t *testing.T) {
	for _, tt := range []struct{ lines, at, problem, fix string }{
		{"conweave: {profile: fast}\n", ":5:21:", `profile "fast" does not exist`, "datacenter, lab or auto"},
		{"conweave: {inactive: 31ms}\n", ":5:22:", "inactive is 31ms", "to 30ms"},
		{"conweave: {reply: 0s}\n", ":5:19:", "reply is 0s", "above 0"},
		{"conweave: {reply: 1ms}\n", ":5:19:", "reply 1ms is above inactive 300µs", "lower reply, or raise inactive"},
		{"conweave: {profile: lab, max_hold: 2ms}\n", ":5:36:", "resume_default 5ms is above max_hold 2ms", "raise max_hold"},
		{"conweave: {connections: 1000}\n", ":5:25:", "connection table of 1000 entries", "a power of two from 4"},
		{"conweave: {samples: 17}\n", ":5:21:", "17 path samples", "use 1 to 16"},
		{"conweave: {selectors: 0}\n", ":5:23:", "0 selectors", "use 1 to 16"},
		{"conweave: {queues: 65536}\n", ":5:20:", "65536 queues", "to 65535"},
		{"conweave: {admission: 101}\n", ":5:23:", "admission at 101 percent", "0 to 100"},
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
		if keys := strings.Join(restart(old, changed), " "); keys != tt.keys {
			t.Errorf("%s to %s: %q need a restart, want %q", tt.from, tt.to, keys, tt.keys)
		}
	}
	// A time that is given and one that is only to start with need not fit.
	auto, err := conweaveLeaf(t, strings.Replace(base, "lab", "auto", 1))
	if err != nil {
		t.Fatal(err)
	}
	if keys := strings.Join(restart(old, auto), " "); !strings.Contains(keys, "conweave.profile") {
		t.Errorf("to profile auto: %q need a restart", keys)
	}
}
