package leaf

import (
	"strings"
	"testing"

	"github.com/loomfabric/loom/balance"
)

// A scheme that goes by answers to its own packets cannot be a shadow; flowlet schemes and
// those that go by hashes can.
func TestWhichSchemesCanBeShadows(t *testing.T) {
	names := strings.Join(Shadows(), " ")
	for _, want := range []string{"ecmp", "letflow", "conga", "drill", "spray"} {
		if !strings.Contains(names, want) {
			t.Errorf("%s cannot be a shadow; %s can", want, names)
		}
	}
	for _, name := range []string{"conweave", "presto", "reed", "hula", "caar", "flowcut"} {
		if CanShadow(balance.Find(name)) {
			t.Errorf("%s can be a shadow", name)
		}
	}
}

func TestShadowImbalance(t *testing.T) {
	c := ShadowCounts{Sent: Uplinks{0: 300, 1: 100}, Would: Uplinks{0: 200, 1: 200}}
	if sent, would := c.Imbalance(); sent != 1 || would != 0 {
		t.Errorf("%v and %v", sent, would)
	}
	if sent, would := new(ShadowCounts).Imbalance(); sent != 0 || would != 0 {
		t.Errorf("of nothing: %v and %v", sent, would)
	}
	c.Would = Uplinks{4: 400}
	if sent, would := c.Imbalance(); sent != 2.25 || would != 3 {
		t.Errorf("%v and %v", sent, would)
	}
}
