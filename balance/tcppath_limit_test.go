package balance

import (
	"testing"
	"time"
)

// A host that opens connections without end has only so many of them explored: the others
// go by one path, and are counted.
func TestTCPPathLimitsExplorations(t *testing.T) {
	section := newTCPPathParams(Datacenter).(*TCPPathParams)
	section.Explorations = 1000
	b := newTCPPathFabric(t, "tcp-path", nil, section)
	frames := 0
	for flow := range 3000 { // one second's worth of SYNs, three a millisecond
		_, h := b.send(0, flow, syn)
		frames += len(h)
		b.wire = nil
		b.now = b.now.Add(time.Second / 3000)
	}
	st := b.end[0].p.stats
	if st.Explorations < 1000 || st.Explorations > 1022 || st.Explorations+st.Limited != 3000 || frames != int(4*st.Explorations+st.Limited) {
		t.Errorf("%d frames: %+v", frames, st)
	}
}
