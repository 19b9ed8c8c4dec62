package congestion

import (
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

// exchangeOf makes a leaf's exchange with one peer, index 0.
func exchangeOf(tags int) (*Exchange, *ToLeaf) {
	p := Datacenter()
	to := NewToLeaf(1, &p)
	return NewExchange(to, NewFromLeaf(1, &p), overlay.NewCapability(1), tags), to
}

// §3.3, Figure 6: "The source leaf sends the packet to the fabric with the
// LBTag field set to the uplink port taken by the packet. It also sets the CE
// field to zero. … As [the packet] traverses each link, its CE field is
// updated if the link's congestion metric … is larger … The CE field of the
// packet received at the destination leaf gives the maximum link congestion
// along the packet's path. … When a packet is sent in the reverse direction,
// one metric … is inserted in its FB_LBTag and FB_Metric fields … The source
// leaf parses the feedback … and updates the Congestion-To-Leaf Table."
func TestPaperExchange(t *testing.T) {
	a, toB := exchangeOf(4)
	b, _ := exchangeOf(4)
	now := mono.Time(time.Second)
	a.capable.Confirm(0, now)
	b.capable.Confirm(0, now)

	var f overlay.Fabric
	if !a.Depart(0, 2, overlay.MakePathID(2, 9), now, &f) {
		t.Fatal("the peer has proved itself, and is sent plain VXLAN")
	}
	if f.LBTag != 2 || f.CE != 0 || f.FBValid || f.Path != overlay.MakePathID(2, 9) {
		t.Fatalf("first packet carries %+v", f)
	}
	outer := make([]byte, overlay.Overhead)
	new(overlay.Tunnel).Encap(outer, 0, 7, 0, 0, &f)
	header := overlay.VXLAN(outer[overlay.Overhead-overlay.VXLANLen:])
	for _, link := range []uint8{3, 5, 1} { // three hops
		header.RaiseCE(link)
	}
	if _, _, reason := header.Decode(&f); reason != 0 {
		t.Fatal(reason)
	}
	b.Arrive(0, now, &f)
	if !b.Depart(0, 1, 0, now, &f) || !f.FBValid || f.FBTag != 2 || f.FBMetric != 5 {
		t.Fatalf("the answer carries %+v, want tag 2, the maximum 5", f)
	}
	a.Arrive(0, now, &f)
	if got := toB.Metric(0, 2, now); got != 5 {
		t.Errorf("to-leaf metric %d, want 5", got)
	}
	if s := a.Stats(); s.FeedbackReceived != 1 || s.Stamped != 1 || s.Plain != 0 {
		t.Errorf("counted %+v", s)
	}
}

// §7, incremental deployment: a peer that has proved nothing gets RFC 7348, and
// one that fell silent gets it again within a second.
func TestPaperIncrementalDeployment(t *testing.T) {
	x, _ := exchangeOf(2)
	now := mono.Time(time.Second)
	var f overlay.Fabric
	if x.Depart(0, 0, 0, now, &f) {
		t.Error("sent fields to a peer of which nothing is known")
	}
	x.Arrive(0, now, &overlay.Fabric{}) // plain VXLAN proves nothing
	if x.Depart(0, 0, 0, now, &f) {
		t.Error("sent fields to a peer that sends plain VXLAN")
	}
	x.Arrive(0, now, &overlay.Fabric{Capable: true})
	if x.Depart(0, 0, 0, now, &f) {
		t.Error("sent fields to a peer that has proved nothing: anybody could have sent these")
	}
	x.capable.Confirm(0, now)
	if !x.Depart(0, 0, 0, now, &f) {
		t.Error("sent plain VXLAN to a capable peer")
	}
	if x.Depart(0, 0, 0, now.Add(time.Second), &f) {
		t.Error("sent fields to a peer that has been silent for a second")
	}
}

func TestExchangeIgnoresNonsense(t *testing.T) {
	p := Datacenter()
	p.Q = 2 // metrics above 3 do not exist
	to := NewToLeaf(1, &p)
	x := NewExchange(to, NewFromLeaf(1, &p), overlay.NewCapability(1), 2)
	now := mono.Time(time.Second)
	x.Arrive(0, now, &overlay.Fabric{Capable: true, FBValid: true, FBTag: 2, FBMetric: 1}) // two uplinks: 0 and 1
	x.Arrive(0, now, &overlay.Fabric{Capable: true, FBValid: true, FBTag: 1, FBMetric: 4})
	x.Arrive(0, now, &overlay.Fabric{Capable: true, CE: 7})
	x.Arrive(9, now, &overlay.Fabric{Capable: true, FBValid: true}) // no such leaf
	if s := x.Stats(); s.FeedbackBadTag != 1 || s.FeedbackBadValue != 4 || s.FeedbackReceived != 0 {
		t.Errorf("counted %+v", s)
	}
	for tag := range uint8(MaxTags) {
		if m := to.Metric(0, tag, now); m != 0 {
			t.Errorf("tag %d has metric %d from nonsense", tag, m)
		}
	}
}

// What nobody measures any more is not fed back (see [FromLeaf]), and that it was
// not is counted.
func TestExchangeCountsStale(t *testing.T) {
	x, _ := exchangeOf(2)
	now := mono.Time(time.Second)
	x.Arrive(0, now, &overlay.Fabric{Capable: true, LBTag: 3, CE: 5})
	now = now.Add(Datacenter().Ageing)
	x.capable.Confirm(0, now) // by no data packet
	var f overlay.Fabric
	for range 3 {
		if !x.Depart(0, 0, 0, now, &f) || f.FBValid {
			t.Fatalf("sent %+v, want the fields without feedback", f)
		}
	}
	if s := x.Stats(); s.FeedbackStale != 1 || s.FeedbackSent != 0 || s.Stamped != 3 {
		t.Errorf("counted %+v", s)
	}
}
