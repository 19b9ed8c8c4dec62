package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// checkPage looks for the parts of a page of the lab busy.
func checkPage(t *testing.T, rep *Report) {
	t.Helper()
	var b bytes.Buffer
	if err := rep.HTML(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for part, n := range map[string]int{
		`<g data-link="L`: 4, `class="node"`: 4, `font-size="13">h`: 6, "<figure": 6, `rate="5e&#43;07"`: 4, "fail L0-S1.0</td>": 1, "restore L0-S1.0</td>": 1, "<td>fan</td><td>all</td>": 1,
		"What S1 sends by each link": 1, "per_leaf: 3": 1,
	} {
		if got := strings.Count(text, part); got != n {
			t.Errorf("the page has %d times %q, want %d", got, part, n)
		}
	}
	if found := regexp.MustCompile(`(src|href)=|url\(|%!|@import`).FindString(text); found != "" {
		t.Errorf("the page has %q: it is to have everything in it", found)
	}
	_, rest, _ := strings.Cut(text, "const M = ")
	line, _, _ := strings.Cut(rest, ";\n")
	var m moments
	if err := json.Unmarshal([]byte(line), &m); err != nil {
		t.Fatalf("what the map plays: %v: %s", err, line)
	}
	if len(m.Links) != 4 || len(m.At) < 4 || len(m.Up) != len(m.At) || len(m.Down) != len(m.At) || len(m.Dead) != len(m.At) {
		t.Fatalf("the map plays %d moments of %d links", len(m.At), len(m.Links))
	}
	failed, carried := slices.Index(m.Links, "L0-S1.0"), 0.0
	fail, restore := rep.Faults[0].At.Seconds(), rep.Faults[1].At.Seconds() // when they were due
	for i, at := range m.At {
		// A busy machine makes faults, and samples, late. Long after both nothing is down.
		if dead := slices.Contains(m.Dead[i], failed); dead && (at < fail-0.1 || at > restore+3) {
			t.Errorf("at %v s the links %v are down", at, m.Dead[i])
		}
		carried = max(carried, m.Up[i][0], m.Down[i][0])
	}
	if !slices.ContainsFunc(m.Dead, func(dead []int) bool { return slices.Contains(dead, failed) }) {
		t.Error("the link that fails is down at no moment")
	}
	if carried < 1 || carried > 60 || m.Top < carried {
		t.Errorf("link 0 carries up to %v Mbit/s of 50, top %v", carried, m.Top)
	}
	if err := (&Report{}).HTML(&b); err == nil {
		t.Error("a run that nobody wanted a page of has one")
	}
}

// checkLook looks at a lab that is up, as people do.
func checkLook(t *testing.T, l *Lab) {
	t.Helper()
	all, err := List()
	i := slices.IndexFunc(all, func(e Entry) bool { return e.Name == l.File.Name })
	if err != nil || i < 0 || all[i].State != "up" || all[i].Leaves != 2 || all[i].Hosts != 6 || all[i].Links != 4 || time.Since(all[i].Since) > 5*time.Minute {
		t.Fatalf("labs %+v, %v", all, err)
	}
	var text bytes.Buffer
	if err := WriteList(&text, all[i:i+1]); err != nil || !strings.Contains(text.String(), l.File.Name+"  up ") {
		t.Errorf("%v:\n%s", err, &text)
	}
	same, err := Open(l.File.Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := same.Fail("L1-S0.0"); err != nil {
		t.Fatal(err)
	}
	s, err := same.Status(t.Context())
	if err != nil || len(s.Nodes) != 4 || len(s.HostNames) != 6 || !slices.Equal(s.LinksDown, []string{"L1-S0.0"}) {
		t.Fatalf("status %+v, %v", s, err)
	}
	if n := s.Nodes[0]; n.Name != "L0" || n.Role != "leafd" || n.State != "ready" || n.PID == 0 || n.VTEP != "10.255.0.1" {
		t.Errorf("node %+v", n)
	}
	text.Reset()
	if err := s.Write(&text); err != nil || !strings.Contains(text.String(), "4 links, down: L1-S0.0") {
		t.Errorf("%v:\n%s", err, &text)
	}
	text.Reset()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	restored := make(chan error, 1)
	go func() { restored <- New(l.File).Restore("L1-S0.0") }()
	if err := errors.Join(same.Logs(ctx, &text, nil, 1, true), <-restored); err != nil {
		t.Error(err)
	}
	for _, part := range []string{"S0  time=", "L1  time=", "interface=up-s0-0 exists=true up=true"} {
		if !strings.Contains(text.String(), part) {
			t.Errorf("the logs lack %q:\n%s", part, &text)
		}
	}
	if err := same.Logs(t.Context(), &text, []string{"h0"}, 1, false); err == nil || !strings.Contains(err.Error(), `"h0" has no daemon: L0, L1, S0, S1 have`) {
		t.Errorf("the log of a host: %v", err)
	}
	text.Reset()
	same.Next(&text, "bin/loomlab")
	for _, part := range []string{"bin/loomlab exec --lab " + l.File.Name + " h0 -- ping -c 3 10.100.0.4 ", "bin/loomctl doctor --lab", "bin/loomlab down --lab"} {
		if !strings.Contains(text.String(), part) {
			t.Errorf("what to type next lacks %q:\n%s", part, &text)
		}
	}
	if _, err := Open("nosuch"); err == nil || !strings.Contains(err.Error(), "loomlab ls") {
		t.Errorf("a lab that is not up: %v", err)
	}
}
