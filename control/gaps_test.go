package control

import (
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/dataplane"
)

func conweave(c *dataplane.Config) *balance.ConWeaveParams {
	return c.Sections["conweave"].(*balance.ConWeaveParams)
}

func TestCheckGaps(t *testing.T) {
	shaped := func(c *dataplane.Config, i int, queue uint32, rate uint64) {
		c.Ports[i].Egress.QueueBytes, c.Ports[i].Egress.Rate = queue, rate
	}
	params := congestion.Lab() // gaps of 6 and 150 ms
	for _, tc := range []struct {
		name   string
		change func(*dataplane.Config)
		want   [][]string // parts of each finding
	}{
		{"no shaper", func(c *dataplane.Config) { c.Ports[0].Egress.QueueBytes = 1 << 30 }, nil},
		{"a short queue", func(c *dataplane.Config) { shaped(c, 0, 75_000, 100e6) }, nil}, // 6 ms
		{"a byte more", func(c *dataplane.Config) { shaped(c, 0, 75_001, 100e6) }, [][]string{
			{"queue of uplink up0 (75001B at 100Mbit) takes 6.001ms", "under conga a flow", "pause of 6ms", "congestion.flowlet_gap above 6.001ms", "up0's queue to at most 75000 bytes"}}},
		{"the longest of several", func(c *dataplane.Config) { shaped(c, 0, 128_000, 100e6); shaped(c, 1, 128_000, 20e6) }, [][]string{
			{"uplink up1 (125KiB at 20Mbit) takes 51.2ms", "flowlet_gap above 51.2ms"}}},
		{"an access port", func(c *dataplane.Config) { shaped(c, 2, 1<<20, 1e6) }, nil},
		{"a scheme without flowlets", func(c *dataplane.Config) { shaped(c, 0, 1<<20, 1e6); c.Scheme = "ecmp" }, nil},
		{"whole flows, a medium queue", func(c *dataplane.Config) { shaped(c, 0, 128_000, 20e6); c.Scheme = "conga-flow" }, nil},
		{"whole flows, a long queue", func(c *dataplane.Config) { shaped(c, 0, 512_000, 20e6); c.Scheme = "conga-flow" }, [][]string{
			{"takes 204.8ms", "under conga-flow a flow", "pause of 150ms", "congestion.flow_gap above 204.8ms", "at most 375000 bytes"}}},
		{"classes", func(c *dataplane.Config) {
			shaped(c, 0, 512_000, 20e6)
			c.Scheme = "spray"
			for _, s := range []string{"letflow", "conga-flow", "local", "ecmp", "local"} {
				c.Classes = append(c.Classes, dataplane.Class{Scheme: s})
			}
		}, [][]string{{"under conga-flow a flow", "flow_gap"}, {"under letflow and local a flow", "flowlet_gap"}}},
		{"both gaps the same", func(c *dataplane.Config) {
			shaped(c, 0, 512_000, 20e6)
			c.Congestion.FlowGap = c.Congestion.FlowletGap
			c.Classes = []dataplane.Class{{Scheme: "conga-flow"}}
		}, [][]string{{"under conga a flow", "congestion.flowlet_gap"}, {"under conga-flow a flow", "congestion.flow_gap"}}},
		{"ConWeave, a queue as long as an epoch", func(c *dataplane.Config) {
			shaped(c, 0, 125_000, 100e6) // 10 ms
			c.Scheme = "conweave"
		}, nil},
		{"ConWeave, a longer one", func(c *dataplane.Config) {
			shaped(c, 0, 125_001, 100e6)
			c.Scheme = "conweave-informed"
			c.Classes = []dataplane.Class{{Scheme: "conweave"}}
		}, [][]string{{"queue of uplink up0 (125001B at 100Mbit) takes 10.001ms", "under conweave and conweave-informed a pause of 10ms", "conweave.inactive to 10.001ms or more", "up0's queue to at most 125000 bytes"}}},
		{"ConWeave, longer than timestamps tell", func(c *dataplane.Config) {
			shaped(c, 0, 125_000, 20e6) // 50 ms
			c.Scheme = "conweave"
			conweave(c).Auto.Inactive = true
		}, [][]string{{"takes 50ms", "a pause of 30ms", "set up0's queue to at most 75000 bytes"}}},
		{"ConWeave, no queue would do", func(c *dataplane.Config) {
			shaped(c, 0, 125_000, 1e6)
			c.Scheme = "conweave"
		}, [][]string{{"takes 1s", "raise up0's rate"}}},
		{"a spine", func(c *dataplane.Config) { shaped(c, 0, 1<<20, 1e6); c.Role = dataplane.Spine }, nil},
		{"the slowest there is", func(c *dataplane.Config) { shaped(c, 0, 1<<30, 1) }, [][]string{{"takes"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &dataplane.Config{Role: dataplane.Leaf, Scheme: "conga", Congestion: params, Sections: map[string]balance.Params{"conweave": balance.Find("conweave").Section.New(balance.Lab)}, Ports: []dataplane.PortConfig{
				{Name: "up0", Kind: dataplane.Uplink}, {Name: "up1", Kind: dataplane.Uplink}, {Name: "acc0", Kind: dataplane.Access},
			}}
			tc.change(c)
			got := CheckGaps(c)
			if len(got) != len(tc.want) {
				t.Fatalf("findings %v, want %d", got, len(tc.want))
			}
			if tc.name == "the slowest there is" && strings.Contains(got[0].Fix, "queue") {
				t.Errorf("advised to have no queue: %v", got[0])
			}
			for i, parts := range tc.want {
				for _, p := range parts {
					if got[i].Fatal || !strings.Contains(got[i].String(), p) {
						t.Errorf("%q is not in %v", p, got[i])
					}
				}
			}
		})
	}
}

// A node is told of it among its start-up checks.
func TestCheckWarnsOfGaps(t *testing.T) {
	c := checkConfig()
	c.Scheme, c.Congestion = "conga", congestion.Datacenter()
	c.Ports[0].Egress.Rate, c.Ports[0].Egress.QueueBytes = 1e9, 512<<10
	got := Check(c, checkOverlay(), goodFacts())
	if len(got) != 1 || got[0].Fatal || !strings.Contains(got[0].Problem, "pause of 500µs") {
		t.Errorf("findings %v", got)
	}
	c.Congestion.FlowletGap = 5 * time.Millisecond
	if got = Check(c, checkOverlay(), goodFacts()); len(got) != 0 {
		t.Errorf("findings %v with a gap of 5 ms", got)
	}
}
