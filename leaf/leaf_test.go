package leaf

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

func TestConfigIsChecked(t *testing.T) {
	congested := func(change func(*congestion.Params)) congestion.Params {
		p := congestion.Datacenter()
		change(&p)
		return p
	}
	conweave := func(change func(*balance.ConWeaveParams)) map[string]balance.Params {
		p := balance.Find("conweave").Section.New(balance.Datacenter).(*balance.ConWeaveParams)
		change(p)
		return map[string]balance.Params{"conweave": p}
	}
	one := []ClassConfig{{}}
	for want, cfg := range map[string]Config{
		"Q is 4":        {Classes: one, Congestion: congested(func(p *congestion.Params) { p.Q = 4 })},
		"tau is -1ns":   {Classes: one, Congestion: congested(func(p *congestion.Params) { p.Tau = -1 })},
		"17 uplinks":    {Classes: one, Uplinks: 17},
		"-1 traffic":    {},
		"16 traffic":    {Classes: make([]ClassConfig, MaxClasses+1)},
		"class 1: sch":  {Classes: []ClassConfig{{}, {Scheme: "no-such"}}},
		"choose one of": {Classes: []ClassConfig{{Scheme: "no-such"}}},
		"class 0: sche": {Classes: []ClassConfig{{Scheme: "conga", Options: balance.Options{Keys: &balance.FlowletKeys{}}}}},
		// Receivers are made whatever the classes are.
		"max_hold is": {Classes: one, Sections: conweave(func(p *balance.ConWeaveParams) { p.Destination.MaxHold = 0 })},
		"reply is":    {Classes: one, Sections: conweave(func(p *balance.ConWeaveParams) { p.Source.Reply = 0 })},
	} {
		p := congestion.Datacenter()
		if _, err := New[int](cfg, NewShared(2, 1, Secret{}, &p)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// What a leaf is configured with reaches its classes and receivers.
func TestSectionsReachAll(t *testing.T) {
	p := balance.Find("conweave").Section.New(balance.Lab).(*balance.ConWeaveParams)
	p.Source.Samples, p.Destination.Packets = 3, 77
	s := newSiteOf(t, Config{Sections: map[string]balance.Params{"conweave": p}}, "conweave", "conweave-informed")
	for i, c := range s.Classes() {
		if got := c.Policy.(balance.ConWeavePolicy).Params(); got != p.Source {
			t.Errorf("class %d has %+v", i, got)
		}
	}
	got := s.Receiver(reorder.SchemeID).(*reorder.ConWeave).Params()
	if got.Packets != 77 || got.Leaves != sitePeers || got.Ports != 4 || got.Inactive != p.Source.Inactive {
		t.Errorf("the receiver has %+v", got)
	}
	// A class can have its own.
	own := *p
	own.Source.Samples = 5
	classes, err := s.MakeClasses([]ClassConfig{{Scheme: "conweave", Options: balance.Options{Section: &own}}, {}})
	if err != nil || classes[0].Policy.(balance.ConWeavePolicy).Params().Samples != 5 {
		t.Errorf("%v, %+v", err, classes)
	}
	if classes[1].Scheme.Name != "ecmp" {
		t.Errorf("a class without a scheme has %s", classes[1].Scheme.Name)
	}
	if len(s.Classes()) != 2 {
		t.Error("classes that were only made are in force")
	}
}

// A header has what leaves tell each other, and the scheme's marks; its path is the
// scheme's if it chooses one, and the hash's if not.
func TestDepart(t *testing.T) {
	s := newSite(t, "ecmp")
	s.now = s.now.Add(123 * time.Microsecond)
	s.shared.Capable.Confirm(1, s.now)
	s.Accept(s.now, 1, &overlay.Fabric{Capable: true, LBTag: 9, CE: 5})
	p, f, ok := s.send(1, 0x1234567a)
	uplink := s.View().Paths[1].Uplink[p.Path]
	want := overlay.Fabric{Capable: true, LBTag: uplink, FBValid: true, FBTag: 9, FBMetric: 5, Path: overlay.MakePathID(uplink, 0xa)}
	if !ok || f != want {
		t.Errorf("under ecmp %v, %+v\nwant %+v", ok, f, want)
	}
	if n := s.Classes()[0].Overhead(&p); n != 0 {
		t.Errorf("%d bytes more than VXLAN", n)
	}

	s = newSite(t, "conweave")
	s.prove(1)
	p, f, ok = s.send(1, 0x1234567a)
	if !ok || f.Scheme != reorder.SchemeID || !f.Shim || f.TxTstamp != overlay.TstampOf(s.now) || f.Opcode != overlay.OpRTTRequest ||
		f.LBTag != f.Path.Uplink() || f.Path.Selector() != p.Selector || f.Epoch != 1 {
		t.Errorf("under conweave %v, %+v", ok, f)
	}
	if n := s.Classes()[0].Overhead(&p); n != overlay.ShimLen {
		t.Errorf("%d bytes more than VXLAN, want %d", n, overlay.ShimLen)
	}
	// A leaf that no longer reads the fields gets plain VXLAN, of plain VXLAN's length.
	s.now = s.now.Add(time.Second)
	p, _, ok = s.send(1, 0x1234567a)
	if ok || s.Classes()[0].Overhead(&p) != 0 {
		t.Errorf("to a silent leaf: %v, %+v", ok, p)
	}
}

// Of schemes that go by queues, what one vector adds is seen by the next of the same
// time; others' bytes are not counted.
func TestChooseCountsWhatItAdds(t *testing.T) {
	for _, scheme := range balance.Schemes() {
		s := newSite(t, scheme.Name)
		s.prove(1)
		sum := func() (n uint32) {
			for _, q := range s.Queue {
				n += q
			}
			return n
		}
		var used [4]int
		for i := range 200 {
			p, _, _ := s.send(1, uint32(i)*0x9e3779b9)
			used[p.Path]++
		}
		want := uint32(0)
		if scheme.Queues {
			want = 200 * 1000
			if slices.Max(used[:])-slices.Min(used[:]) > 6 {
				t.Errorf("%s: 200 packets of one time by path: %v", scheme.Name, used)
			}
		}
		if sum() != want {
			t.Errorf("%s: %d bytes in queues, want %d", scheme.Name, sum(), want)
		}
	}
}

// exactSeen is what a policy is shown of each packet.
type exactSeen struct {
	*fakePolicy
	seen []balance.Exact
}

func (e *exactSeen) Choose(_ mono.Time, v *balance.View, _ []balance.Packet) { e.seen = v.Exact }

// What a scheme wants to know exactly reaches it, and does not stay for the next one.
func TestChooseShowsExactKeys(t *testing.T) {
	s := newSite(t, "ecmp")
	p := &exactSeen{fakePolicy: &fakePolicy{name: "exact", deadline: reorder.Never}}
	c := &Class{Scheme: &balance.Scheme{Name: "exact", Exact: true}, Policy: p}
	exact := []balance.Exact{{TCPFlags: 2}}
	if s.Choose(s.now, c, make([]balance.Packet, 1), exact); len(p.seen) != 1 || p.seen[0] != exact[0] {
		t.Errorf("shown %+v", p.seen)
	}
	if s.Choose(s.now, c, make([]balance.Packet, 1), nil); p.seen != nil {
		t.Errorf("shown %+v of another vector", p.seen)
	}
}

// A message goes to its class, or to all, if their scheme is the message's. Of several
// workers' counters Received less Known is what was about nothing.
func TestHandle(t *testing.T) {
	s := newSite(t, "ecmp")
	a, b, c := &fakePolicy{name: "a"}, &fakePolicy{name: "b"}, &fakePolicy{name: "c"}
	s.SetClasses([]*Class{a.class(9), b.class(9), c.class(10)})
	message := func(op overlay.Opcode) *overlay.Message {
		return &overlay.Message{Leaf: 1, Link: overlay.AnyLink, Hash: 5, Fabric: overlay.Fabric{Capable: true, Scheme: 9, Opcode: op, Path: 0x20}}
	}
	count := func() string { return fmt.Sprint(len(a.handled), len(b.handled), len(c.handled)) }
	counted := func(op overlay.Opcode) string {
		st := s.Stats()
		return fmt.Sprint(st.Received[op], st.Known[op], st.Relayed)
	}
	for _, tt := range []struct {
		name    string
		class   int
		op      overlay.Opcode
		first   bool
		known   bool // to b
		ok      bool
		handled string // messages of a, b, c
		counted string // received, known, relayed, of that opcode
	}{
		{"to a class", 1, overlay.OpClear, true, true, true, "0 1 0", "1 1 0"},
		{"that does not know it", 0, overlay.OpClear, true, true, true, "1 1 0", "2 1 0"},
		{"of another scheme", 2, overlay.OpClear, true, true, false, "1 1 0", "2 1 0"},
		{"to all", -1, overlay.OpRTTReply, true, true, true, "2 2 0", "1 1 0"},
		{"to all, who do not know it", -1, overlay.OpRTTReply, true, false, true, "3 3 0", "2 1 0"},
		{"from another worker", -1, overlay.OpRTTReply, false, true, true, "4 4 0", "2 2 1"},
		{"from another, unknown", -1, overlay.OpRTTReply, false, false, true, "5 5 0", "2 2 2"},
		{"NOTIFY", 1, overlay.OpNotify, true, true, true, "5 6 0", "1 1 2"},
		{"NOTIFY from another worker", 1, overlay.OpNotify, false, true, true, "5 7 0", "1 1 3"},
		{"NOTIFY of a path that no flow has taken", 1, overlay.OpNotify, true, false, true, "5 8 0", "2 2 3"},
	} {
		b.known = tt.known
		if ok := s.Handle(s.now, tt.class, message(tt.op), tt.first); ok != tt.ok {
			t.Errorf("%s: handled %v", tt.name, ok)
		}
		if got := count(); got != tt.handled {
			t.Errorf("%s: handled %s times, want %s", tt.name, got, tt.handled)
		}
		if got := counted(tt.op); got != tt.counted {
			t.Errorf("%s: received, known and relayed are %s, want %s", tt.name, got, tt.counted)
		}
	}
	b.known = false
	astray := message(overlay.OpNotify)
	astray.Fabric.Path = 0xf0
	if s.Handle(s.now, 1, astray, true); counted(overlay.OpNotify) != "3 2 3" {
		t.Errorf("a NOTIFY of an uplink that leads nowhere: %s", counted(overlay.OpNotify))
	}
	if plain := newSite(t, "ecmp"); plain.Handle(plain.now, -1, message(overlay.OpClear), true) || plain.Stats().Received[overlay.OpClear] != 0 {
		t.Error("a leaf without schemes that handle messages handles one")
	}
}

// Schemes that ask for it are woken, once a deadline, and what they say goes to a leaf
// or to a link's neighbour.
func TestTimedPolicies(t *testing.T) {
	s := newSite(t, "ecmp")
	early, late := &fakePolicy{name: "early", deadline: s.now + 10}, &fakePolicy{name: "late", deadline: s.now + 20}
	s.SetClasses([]*Class{early.class(9), late.class(10)})
	s.prove(1)
	early.say = []overlay.Message{
		{Leaf: 1, Link: overlay.AnyLink, Hash: 0xc0000000, Fabric: overlay.Fabric{Opcode: overlay.OpExplore, Path: 0x35, Shim: true, Arg: 9}},
		{Leaf: 2, Link: overlay.AnyLink}, // not capable
		{Link: 2, Fabric: overlay.Fabric{Capable: true, Opcode: overlay.OpExtension}},
	}
	if s.Deadline() != s.now+10 {
		t.Errorf("due in %d", s.Deadline()-s.now)
	}
	if o := s.Tick(s.now+9, false); len(o.Messages) != 0 || early.ticks != 0 {
		t.Error("woken too early")
	}
	o := s.Tick(s.now+10, false)
	if early.ticks != 1 || late.ticks != 0 || s.Deadline() != s.now+20 {
		t.Errorf("woken %d and %d times, the next due in %d", early.ticks, late.ticks, s.Deadline()-s.now)
	}
	if len(o.Messages) != 2 || s.Stats().Unsent.Incapable != 1 {
		t.Fatalf("%+v, %+v", o.Messages, s.Stats().Unsent)
	}
	m := o.Messages[0]
	want := overlay.Fabric{Capable: true, Scheme: 9, Opcode: overlay.OpExplore, LBTag: 3, Path: 0x35, Shim: true, Arg: 9, FBValid: true, FBTag: 1}
	if m.Fabric != want || m.Path != 3 || m.Cause != overlay.NoCause {
		t.Errorf("to the leaf %+v\nwant %+v", m, want)
	}
	if m = o.Messages[1]; m.Link != 2 || m.Fabric.Opcode != overlay.OpExtension || m.Fabric.Scheme != 9 {
		t.Errorf("to the neighbour %+v", m)
	}
	s.SetClasses(s.Classes()[:1])
	if s.Tick(s.now+30, false); late.ticks != 0 || s.Deadline() != reorder.Never {
		t.Error("a policy that is no more is woken")
	}
}

// own is the counters of a scheme.
type own struct {
	N    uint64
	Peak int `stat:",max"`
}

// What schemes counted stays when their classes go, scheme by scheme, and is nobody
// else's to change.
func TestSchemeStatsStay(t *testing.T) {
	s := newSite(t, "ecmp")
	s.send(1, 1)
	a, again, bare := &fakePolicy{name: "a", own: &own{5, 7}}, &fakePolicy{name: "a", own: &own{1, 9}}, &fakePolicy{name: "bare"}
	s.SetClasses([]*Class{a.class(9), again.class(9), bare.class(0)})
	want := []SchemeStats{
		{"ecmp", balance.Stats{Decisions: 1}},
		{"a", balance.Stats{Decisions: 2, Own: &own{6, 9}}},
		{"bare", balance.Stats{Decisions: 1}},
	}
	for range 2 { // asked twice, it says the same
		if got := s.SchemeStats(); !reflect.DeepEqual(got, want) {
			t.Errorf("%+v", got)
		}
	}
	s.SetClasses([]*Class{again.class(9)})
	want[1] = SchemeStats{"a", balance.Stats{Decisions: 3, Own: &own{7, 9}}}
	if got := s.SchemeStats(); !reflect.DeepEqual(got, want) {
		t.Errorf("after a change %+v", got)
	}
	if *a.own.(*own) != (own{5, 7}) || *again.own.(*own) != (own{1, 9}) {
		t.Error("a policy's counters were changed")
	}
	// Two workers' add up.
	sums := AddSchemes(AddSchemes(nil, s.SchemeStats()), []SchemeStats{{"b", balance.Stats{Decisions: 4}}, {"a", balance.Stats{Own: &own{1, 20}}}})
	want[1].Own = &own{8, 20}
	if want = append(want, SchemeStats{"b", balance.Stats{Decisions: 4}}); !reflect.DeepEqual(sums, want) {
		t.Errorf("two workers %+v", sums)
	}
	if got := s.SchemeStats()[1].Own.(*own); *got != (own{7, 9}) {
		t.Errorf("a sum changed what it is of: %+v", got)
	}
}

// The driver counts what it sends, and what it cannot send.
func TestAccount(t *testing.T) {
	s := newSite(t, "ecmp")
	s.Account(overlay.OpClear, 100)
	s.Account(overlay.OpClear, 20)
	s.Account(255, 1) // whatever the wire brings
	s.Unsent().NoFrame++
	st := s.Stats()
	if st.Sent[overlay.OpClear] != (Amount{Frames: 2, Bytes: 120}) || st.Sent[7] != (Amount{Frames: 1, Bytes: 1}) || st.Unsent != (Unsent{NoFrame: 1}) {
		t.Errorf("%+v, %+v", st.Sent, st.Unsent)
	}
}
