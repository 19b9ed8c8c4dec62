package daemon

import (
	"bytes"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/loomfabric/loom/control"
	"github.com/loomfabric/loom/dataplane"
)

// What is wrong with an interface is logged when it becomes so, and when it is no longer
// so, once; what the start has logged is not.
func TestChecksAreRepeated(t *testing.T) {
	n := &node{dp: dataplane.Config{Workers: 1, MaxMTU: 1500, Ports: []dataplane.PortConfig{
		{Name: "acc0", Kind: dataplane.Access}, {Name: "acc1", Kind: dataplane.Access},
	}}}
	good := control.PortFacts{MTU: 1500, RXQueues: 1, TXQueues: 1, Up: true}
	leaky := good
	leaky.Addrs = []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}
	wide := good
	wide.MTU = 3000

	facts := map[string]control.PortFacts{"acc0": leaky}
	var failure error
	var log bytes.Buffer
	start := control.CheckPorts(&n.dp, nil, &control.Facts{Ports: facts})
	other := control.Finding{Place: "vtep", Problem: "none of its business"}
	w := newWatcher(func() *node { return n }, append(start, other), slog.New(slog.NewTextHandler(&log, nil)))
	w.gather = func(*dataplane.Config) (*control.Facts, error) { return &control.Facts{Ports: facts}, failure }
	step := func(findings int, want ...string) {
		t.Helper()
		for range 2 { // the second look finds nothing new
			w.look()
		}
		if got := w.findings(); len(got) != findings {
			t.Errorf("findings %v, want %d", got, findings)
		}
		got := strings.Split(strings.TrimSuffix(log.String(), "\n"), "\n")
		log.Reset()
		if len(want) == 0 {
			want = []string{""}
		}
		if len(got) != len(want) {
			t.Fatalf("logged %q, want %q", got, want)
		}
		for i := range want {
			if !strings.Contains(got[i], want[i]) {
				t.Errorf("logged %q, want %q", got[i], want[i])
			}
		}
	}
	step(1) // the start said so
	facts = map[string]control.PortFacts{"acc0": leaky, "acc1": wide}
	step(2, `level=ERROR msg="interface acc1 has MTU 3000, and a packet buffer holds 1774" fix="ip link set dev acc1 mtu 1774"`)
	failure = errors.New("no answer")
	step(2, `level=WARN msg="cannot check the interfaces again; trying again" err="no answer"`)
	failure = nil
	facts = map[string]control.PortFacts{"acc0": good, "acc1": wide}
	step(1, `level=INFO msg="no longer so: access port acc0 has the address 10.0.0.1/24`)
	facts = map[string]control.PortFacts{"acc0": leaky}
	step(1, "access port acc0 has the address", "no longer so: interface acc1 has MTU 3000")
}
