package dataplane

import (
	"reflect"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

func TestArrivals(t *testing.T) {
	table, now := newArrivalTable(), mono.Time(time.Hour)
	ports := &layout{ports: []seat{{PortConfig: PortConfig{Name: "up0"}}, {PortConfig: PortConfig{Name: "up1"}}, {PortConfig: PortConfig{Name: "up2"}}}, uplinks: []PortID{0, 1, NoPort, 2}}
	want := func(peer PeerID, want ...Arrival) {
		t.Helper()
		if got := table.of(peer, ports, now); len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
			t.Errorf("peer %d: %+v, want %+v", peer, got, want)
		}
	}
	want(7)
	for s := range uint8(16) { // a spine with two links: selectors take them in turn
		table.note(7, overlay.MakePathID(5, s), s%2, now)
	}
	table.note(7, overlay.MakePathID(6, 15), 3, now)
	want(7, Arrival{5, 16, []string{"up0", "up1"}}, Arrival{6, 1, []string{"up2"}})
	want(6)
	want(8)
	for s := range uint8(16) { // the route loses a next hop
		table.note(7, overlay.MakePathID(5, s), 1, now)
	}
	want(7, Arrival{5, 16, []string{"up1"}}, Arrival{6, 1, []string{"up2"}})
	now = now.Add(arrivalAge + time.Second)
	table.note(7, overlay.MakePathID(6, 0), 2, now) // by an uplink that is gone by now
	want(7, Arrival{6, 1, []string{}})
}
