package admin

import (
	"net/http"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/gaissmai/bart"

	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/overlay"
)

func TestRoutes(t *testing.T) {
	if _, body := ask(t, fakeServer(&fakeNode{}, true, fakeTables()), "GET", "/v1/routes"); body != `{"routes":[{"prefix":"10.0.0.2/32","next_hops":[{"port":"up0","gateway":"192.168.0.1","mac":"00:00:00:00:00:00","resolved":true,"weight":1}]}]}` {
		t.Errorf("a leaf's: %s", body)
	}
	tables := fakeTables()
	tables.Peers, tables.Groups = nil, []dataplane.Group{{Hops: []dataplane.HopID{0}, Weights: []uint16{3}}, {}}
	tables.Routes = new(bart.Table[uint32])
	tables.Routes.Insert(netip.MustParsePrefix("10.0.1.0/24"), 1)
	tables.Routes.Insert(netip.MustParsePrefix("10.0.0.0/16"), 0)
	_, body := ask(t, fakeServer(&fakeNode{}, false, tables), "GET", "/v1/routes")
	if want := `{"routes":[{"prefix":"10.0.0.0/16","next_hops":[{"port":"up0","gateway":"192.168.0.1","mac":"00:00:00:00:00:00","resolved":true,"weight":3}]},{"prefix":"10.0.1.0/24","next_hops":[]}]}`; body != want {
		t.Errorf("a spine's: %s", body)
	}
	if _, body := ask(t, fakeServer(&fakeNode{}, true, nil), "GET", "/v1/routes"); body != `{"routes":[]}` {
		t.Errorf("without tables: %s", body)
	}
}

func TestRouteAndArrival(t *testing.T) {
	n := &fakeNode{}
	spine, leaf := fakeServer(n, false, fakeTables()), fakeServer(n, true, fakeTables())
	selector := uint8(5)
	code, _ := ask(t, spine, "GET", "/v1/route?src=10.0.0.1&dst=10.0.0.2&sport=50000&in=dn0&capable=true&selector=5")
	if want := (&dataplane.OuterFlow{Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.0.2"), SrcPort: 50000, In: "dn0", Capable: true, Selector: &selector}); code != http.StatusOK || !reflect.DeepEqual(n.outer, want) {
		t.Errorf("%d, %+v", code, n.outer)
	}
	code, _ = ask(t, leaf, "GET", "/v1/arrival?from=10.0.0.1&in=up0&vni=100&dst_mac=02:00:00:00:00:01")
	if want := (&dataplane.InnerFlow{From: netip.MustParseAddr("10.0.0.1"), In: "up0", VNI: 100, DstMAC: overlay.MAC{2, 0, 0, 0, 0, 1}}); code != http.StatusOK || !reflect.DeepEqual(n.arrival, want) {
		t.Errorf("%d, %+v", code, n.arrival)
	}
	for path, says := range map[string]string{
		"/v1/route?src=x&dst=10.0.0.2":                      `src \"x\"`,
		"/v1/route?src=10.0.0.1&dst=10.0.0.2&selector=16":   "0 to 15",
		"/v1/route?src=10.0.0.1&dst=10.0.0.2&selector=1":    "capable=true",
		"/v1/route?src=10.0.0.1&dst=10.0.0.2&capable=maybe": "true or false",
		"/v1/arrival?from=10.0.0.1&vni=100":                 "ask a leaf",
		"/v1/route?src=10.0.0.1&dst=10.0.0.2&sport=70000":   "65535",
	} {
		if code, body := ask(t, spine, "GET", path); code == http.StatusOK || !strings.Contains(body, says) {
			t.Errorf("%s: %d %s, want %q", path, code, body, says)
		}
	}
	for path, says := range map[string]string{
		"/v1/arrival?from=10.0.0.1&vni=100": "dst_mac", "/v1/arrival?dst_mac=02:00:00:00:00:01": "from", "/v1/route?src=10.0.0.1&dst=10.0.0.2": `"other_role":true`,
	} {
		if code, body := ask(t, leaf, "GET", path); code == http.StatusOK || !strings.Contains(body, says) {
			t.Errorf("%s: %d %s, want %q", path, code, body, says)
		}
	}
	if code, _ := ask(t, fakeServer(n, false, nil), "GET", "/v1/route?src=10.0.0.1&dst=10.0.0.2"); code != http.StatusServiceUnavailable {
		t.Errorf("without tables: %d", code)
	}
	if _, body := ask(t, leaf, "GET", "/v1/hosts?limit=3"); n.limit != 3 || !strings.Contains(body, `"total":7`) {
		t.Errorf("hosts: %s", body)
	}
}
