package netns

import (
	"testing"

	"github.com/loomfabric/loom/internal/testenv"
)

func TestX(t *testing.T) {
	f := up(t, "jumbo.yaml")
	for _, size := range []int{56, 3000, 3700, 3900, 7000, 8972} {
		out, ok := testenv.Ping(t, f.ns["h0"], f.host("h2").Addr.Addr(), size, 3)
		t.Log(size, ok, out)
	}
	transfer(t, f.ns["h0"], f.ns["h2"], f.host("h2").Addr.Addr(), 64<<20)
	t.Log(f.daemons["L0"].tail())
}
