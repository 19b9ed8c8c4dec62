package balance

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/internal/stat"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// What a descriptor says of a scheme is what its policy is.
func TestDescriptorsAreTrue(t *testing.T) {
	for _, s := range Schemes() {
		t.Run(s.Name, func(t *testing.T) {
			p, promise := mustNew(t, s.Name, 1), promisesOf(t, s.Name)
			if strings.ContainsFunc(s.Name, func(r rune) bool { return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789-", r) }) {
				t.Error("the name cannot be written everywhere")
			}
			if strings.HasSuffix(s.Summary, ".") || strings.ToLower(s.Summary[:1]) != s.Summary[:1] {
				t.Errorf("the summary is no clause: %q", s.Summary)
			}
			if _, ok := p.(Messenger); ok && (s.Wire == 0 || !s.NeedsPeer) {
				t.Errorf("it handles messages: wire number %d, needs a peer %v", s.Wire, s.NeedsPeer)
			}
			auto := s.Gap != nil || s.Section != nil && slices.Contains(s.Section.Profiles, Auto)
			if _, ok := p.(Tuned); ok != auto {
				t.Errorf("its times follow from round trips: says %v, and has Retime %v", auto, ok)
			}
			if s.Fixed != promise.perFlow {
				t.Errorf("flows keep their path for life: says %v, promised %v", s.Fixed, promise.perFlow)
			}
			if s.Queues != promise.followsQueue {
				t.Errorf("it decides by queues: says %v, promised %v", s.Queues, promise.followsQueue)
			}
			if promise.followsRemote && !s.NeedsPeer {
				t.Error("it follows what peers say, and says that it needs none")
			}
			v := newView(firstPaths(4))
			shim := false
			for i := range 400 {
				if i == 100 { // flows that may not move want to
					v.Local[0], v.Local[1], v.Local[2] = 7, 7, 7
				}
				pkts := []Packet{{Hash: uint32(i%3) * 0x9E3779B1, Len: 1500}}
				if s.Exact {
					v.Exact = exactOf(pkts)
				}
				p.Choose(mono.Time(i)*1000, v, pkts)
				shim = shim || pkts[0].Shim
				if s.Wire == 0 && pkts[0].Marks != (Marks{}) {
					t.Fatalf("it has no wire number, and marks %+v", pkts[0].Marks)
				}
				if !s.Waits && pkts[0].Until != 0 || !s.Copies && pkts[0].Copies != 0 {
					t.Fatalf("it waits or copies without having said so: %+v", pkts[0])
				}
			}
			if shim != s.Shim {
				t.Errorf("packets have the shim: %v, says %v", shim, s.Shim)
			}
			if s.Shim && !slices.ContainsFunc(Schemes(), func(o *Scheme) bool { return o.Wire == s.Wire && o.Receiver != nil }) {
				t.Error("its packets have the shim, and nobody receives them")
			}
		})
	}
}

// Defaults of every profile are valid, and whoever changes them changes a copy.
func TestDefaultsAreValid(t *testing.T) {
	for _, s := range Schemes() {
		if s.Keys != nil {
			a, b := s.Keys(), s.Keys()
			if err := a.Validate(); err != nil || a == b {
				t.Errorf("%s: keys %+v: %v", s.Name, a, err)
			}
		}
	}
	names := map[string]bool{}
	for _, s := range Sections() {
		if !slices.Contains(s.Profiles, Datacenter) || s.Name == "" || s.Summary == "" || names[s.Name] {
			t.Errorf("section %+v", s)
		}
		names[s.Name] = true
		for _, profile := range s.Profiles {
			a, b := s.New(profile), s.New(profile)
			if err := a.Validate(); err != nil || a == b {
				t.Errorf("section %s, profile %v: %+v: %v", s.Name, profile, a, err)
			}
			if h, ok := a.(Holder); ok {
				l := h.Limit(7).(Holder)
				if err := l.Validate(); err != nil || l.Holds() != 7 || h.Holds() == 7 || h.Limit(1<<20).(Holder).Holds() != h.Holds() {
					t.Errorf("section %s, profile %v: limited to 7 packets it holds %d: %v", s.Name, profile, l.Holds(), err)
				}
			}
		}
	}
}

// A contradiction in a descriptor does not get past the start of any program.
func TestRegisterPanics(t *testing.T) {
	fine := func(*Options) Policy { return nil }
	receiver := func(*Options) (Receiver, error) { return nil, nil }
	before := len(schemes)
	for name, s := range map[string]Scheme{
		"nothing":         {},
		"no name":         {Summary: "x", New: fine},
		"no summary":      {Name: "x", New: fine},
		"no constructor":  {Name: "x", Summary: "x"},
		"there twice":     {Name: "ecmp", Summary: "x", New: fine},
		"number 16":       {Name: "x", Summary: "x", New: fine, Wire: 16},
		"GBP's number":    {Name: "x", Summary: "x", New: fine, Wire: 8},
		"shim, no number": {Name: "x", Summary: "x", New: fine, Shim: true},
		"no number":       {Name: "x", Summary: "x", New: fine, Receiver: receiver},
		"two receivers":   {Name: "x", Summary: "x", New: fine, Wire: reorder.SchemeID, Receiver: receiver},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: registered", name)
				}
			}()
			register(s)
		}()
	}
	if len(schemes) != before {
		t.Errorf("%d schemes, %d before", len(schemes), before)
	}
}

func TestProfiles(t *testing.T) {
	for p, want := range map[Profile]string{Datacenter: "datacenter", Lab: "lab", Auto: "auto", 9: "profile 9"} {
		if p.String() != want {
			t.Errorf("%d is %q, want %q", uint8(p), p, want)
		}
	}
}

// schemeRow is a row of docs/wire-format.md: a number, and the names that have it.
var schemeRow = regexp.MustCompile("(?m)^\\| (\\d+) \\| (`[a-z0-9`, -]+`) \\|")

// The page of the wire format names the number of every scheme that has one, and no
// other.
func TestWireNumbersAreOnThePage(t *testing.T) {
	page, err := os.ReadFile("../docs/wire-format.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n### Schemes\n")
	section, _, _ = strings.Cut(section, "\n### ")
	documented := map[string][]string{}
	for _, row := range schemeRow.FindAllStringSubmatch(section, -1) {
		for name := range strings.SplitSeq(row[2], ",") {
			documented[row[1]] = append(documented[row[1]], strings.Trim(name, " `"))
		}
	}
	want := map[string][]string{}
	for _, s := range Schemes() {
		if s.Wire != 0 {
			number := fmt.Sprint(s.Wire)
			want[number] = append(want[number], s.Name)
		}
	}
	for _, numbers := range []map[string][]string{documented, want} {
		for _, names := range numbers {
			slices.Sort(names)
		}
	}
	if fmt.Sprint(documented) != fmt.Sprint(want) {
		t.Errorf("docs/wire-format.md says %v, the schemes are %v", documented, want)
	}
	if row := fmt.Sprintf("\n| schemes | 1 to %d | ", len(want)); !strings.Contains(string(page), row) {
		t.Errorf("docs/wire-format.md has no row that begins with %q", row)
	}
}

// The dissector knows each number by a name.
func TestWireNumbersAreInTheDissector(t *testing.T) {
	lua, err := os.ReadFile("../deploy/wireshark/loom.lua")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(lua), "local schemes = {")
	table, _, _ = strings.Cut(table, "}")
	for _, s := range Schemes() {
		if s.Wire != 0 && !strings.Contains(table, fmt.Sprintf("[%d] =", s.Wire)) {
			t.Errorf("scheme %s has number %d, which deploy/wireshark/loom.lua does not know", s.Name, s.Wire)
		}
	}
}

// Every scheme's counters, and those of its receiver, can be added up.
func TestStatsAddUp(t *testing.T) {
	for _, s := range Schemes() {
		if own := mustNew(t, s.Name, 1).Stats().Own; own != nil {
			stat.Add(own, stat.Clone(own))
		}
		if s.Receiver == nil {
			continue
		}
		o := Options{Leaves: 4, Ports: 4}
		if err := s.Complete(&o); err != nil {
			t.Fatal(err)
		}
		r, err := s.Receiver(&o)
		if err != nil {
			t.Fatal(err)
		}
		a := r.Stats()
		stat.Add(a, r.Stats())
	}
}

// Marks go into the header, those with a shim under the scheme's number, and leave alone
// what leaves tell each other.
func TestStamp(t *testing.T) {
	exchange := overlay.Fabric{Capable: true, LBTag: 3, CE: 2, FBValid: true, FBTag: 4, FBMetric: 5, Path: 0x37}
	for _, m := range []Marks{
		{},
		{Opcode: overlay.OpRTTRequest, Epoch: 3, Shim: true, Selector: 9},
		{Rerouted: true, Tail: true, Shim: true, Arg: 0xfffe},
		{Arg: 7}, // without the shim there is no room for it
	} {
		f := exchange
		m.Stamp(mono.Time(5_000_000), 6, 3, &f)
		want := exchange
		want.Opcode, want.Epoch, want.Rerouted, want.Tail, want.Shim = m.Opcode, m.Epoch, m.Rerouted, m.Tail, m.Shim
		want.Path = overlay.MakePathID(3, m.Selector)
		if m.Shim {
			want.Scheme, want.TxTstamp, want.Arg = 6, 5000, m.Arg
		}
		if f != want {
			t.Errorf("%+v\nmade %+v\nwant %+v", m, f, want)
		}
	}
}
