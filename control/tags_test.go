package control

import (
	"strings"
	"testing"

	"github.com/loomfabric/loom/internal/ethtool"
	"github.com/loomfabric/loom/internal/testenv"
)

// Whether a veth that tells nothing hides tags depends on its peer's offload, not on its
// own.
func TestLookForHiddenTags(t *testing.T) {
	testenv.NeedRoot(t)
	a, b := testenv.NewNamespace(t, "ctl-tags"), testenv.NewNamespace(t, "ctl-tags")
	apart, _ := testenv.VethPair(t, a, "eth1", b, "eth1", testenv.VethOptions{Queues: 3})
	near, _ := testenv.VethPair(t, a, "near1", a, "near2", testenv.VethOptions{})
	a.Do(t, func() {
		s, err := ethtool.Open()
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		expect := func(index int, want ...string) {
			t.Helper()
			i, err := Look(index)
			if err != nil || (i.TagsHidden == "") != (len(want) == 0) || i.XDP {
				t.Errorf("%+v, %v", i, err)
			}
			for _, s := range want {
				if !strings.Contains(i.TagsHidden+"\n"+i.TagsFix, s) {
					t.Errorf("%+v does not name %q", i, s)
				}
			}
		}
		offload := func(name string) {
			t.Helper()
			if err := s.Set(name, ethtool.TXVLAN, false); err != nil {
				t.Fatal(err)
			}
		}
		expect(a.Link(t, "lo").Attrs().Index)
		expect(apart.Attrs().Index, "peer of eth1", "another network namespace", "6.8")
		expect(near.Attrs().Index, "near2, the peer of near1", "ethtool -K near2 txvlan off")
		offload("near1") // its own changes nothing
		expect(near.Attrs().Index, "ethtool -K near2 txvlan off")
		offload("near2")
		expect(near.Attrs().Index)
		if i, err := Look(apart.Attrs().Index); err != nil || i.Name != "eth1" || i.RXQueues != 3 || i.TXQueues != 3 {
			t.Errorf("%+v, %v", i, err)
		}
		if _, err := Look(1 << 20); err == nil {
			t.Error("an interface that does not exist is there")
		}
	})
}
