package config

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/loomfabric/loom/dataplane"
)

const trusting = `vtep: 10.0.0.1
reverse_path: feasible
peers: [10.0.0.2, 10.0.0.3]
uplinks: [{interface: up0}]
access:
  - {interface: acc0, vni: 100}
  - {interface: acc1, vni: 100, fail: open, fdb_limit: 16}
vnis:
  - {vni: 100, members: [10.0.0.3], storm: {rate: 7, bandwidth: 8Mbit}}
  - {vni: 200}
`

// TestTrust: whom a leaf believes, and what it lets through without a daemon, come out
// of its file, and with their defaults where it does not say.
func TestTrust(t *testing.T) {
	l, err := ParseLeaf("leafd.yaml", []byte(trusting), nil)
	if err != nil {
		t.Fatal(err)
	}
	c := l.ToDataplane()
	if c.ReversePath != dataplane.FeasiblePath || c.Ports[1].FailOpen || !c.Ports[2].FailOpen || c.Ports[1].FDBLimit != 0 || c.Ports[2].FDBLimit != 16 {
		t.Errorf("%+v", c)
	}
	if v := l.VNIs[0]; len(v.Members) != 1 || v.Members[0] != netip.MustParseAddr("10.0.0.3") || v.Storm != (Storm{Rate: 7, Burst: 1, Bandwidth: 8e6}) {
		t.Errorf("%+v", v)
	}
	if v := l.VNIs[1]; v.Members != nil || v.Storm != (Storm{Rate: 10_000, Burst: 1000, Bandwidth: 100e6}) {
		t.Errorf("defaults: %+v", v)
	}
	for _, tt := range []struct{ old, new, want string }{
		{"members: [10.0.0.3]", "members: [10.0.0.9]", "not among peers"},
		{"fail: open", "fail: ajar", "closed or open"},
		{"feasible", "loose", "strict, feasible or off"},
	} {
		_, err := ParseLeaf("leafd.yaml", []byte(strings.Replace(trusting, tt.old, tt.new, 1)), nil)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want one with %q", tt.new, err, tt.want)
		}
	}
}
