package events

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
)

// What a log gets goes on to it by its own level, and is kept from INFO on.
func TestHandler(t *testing.T) {
	var out bytes.Buffer
	r := NewRing(10)
	log := slog.New(Keep(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn}), r)).With("node", "L0")
	log.Debug("nothing")
	log.Info("peer is back", "peer", "10.0.0.2", "was", 7)
	log.Warn("path is silent", "peer", "10.0.0.2", "uplink", "up1")
	log.WithGroup("g").Error("no", "port", "eth0", "x", strings.Repeat("y", 2*maxText))
	if got := strings.Count(out.String(), "\n"); got != 2 || strings.Contains(out.String(), "back") || !strings.Contains(out.String(), "node=L0") {
		t.Errorf("the log says\n%s", &out)
	}
	events, last, lost := r.Since(0, 100)
	if len(events) != 3 || last != 3 || lost != 0 {
		t.Fatalf("%d events, last %d, lost %d", len(events), last, lost)
	}
	a, b, c := events[0], events[1], events[2]
	if a.Kind != "peer" || a.Object != "10.0.0.2" || a.Attrs["was"] != "7" || a.Attrs["node"] != "L0" || a.Level != "INFO" || a.Number != 1 || a.Time.IsZero() {
		t.Errorf("%+v", a)
	}
	if b.Kind != "path" || b.Object != "10.0.0.2 by up1" || b.Text != "path is silent" || b.Level != "WARN" {
		t.Errorf("%+v", b)
	}
	if c.Kind != "node" || c.Object != "L0" || len(c.Attrs["g.x"]) != maxText || c.Attrs["g.port"] != "eth0" {
		t.Errorf("%+v", c)
	}
}

func TestAbout(t *testing.T) {
	for _, tt := range []struct {
		attrs        map[string]string
		kind, object string
	}{
		{map[string]string{"interface": "eth0", "up": "false"}, "port", "eth0"},
		{map[string]string{"mac": "02::", "vni": "7", "at": "x"}, "address", "02:: in VNI 7"},
		{map[string]string{"file": "f", "node": "n"}, "config", "f"},
		{map[string]string{"address": "10.0.0.1", "ifindex": "3"}, "next_hop", "10.0.0.1"},
		{map[string]string{"node": "n"}, "node", "n"},
		{map[string]string{"node": "n", "address": "/run/x.sock"}, "node", "n"},
	} {
		if kind, object := about(tt.attrs); kind != tt.kind || object != tt.object {
			t.Errorf("%v is about %s %s", tt.attrs, kind, object)
		}
	}
}

// The ring keeps the newest, says how many it has not kept, and starts over for one who
// asks with a number of another process.
func TestRing(t *testing.T) {
	r := NewRing(4)
	for i := range 10 {
		r.add(Event{Text: fmt.Sprint(i + 1)})
	}
	for _, tt := range []struct {
		since uint64
		limit int
		want  string
		lost  uint64
	}{
		{0, 100, "7 8 9 10", 6}, {6, 100, "7 8 9 10", 0}, {5, 100, "7 8 9 10", 1}, {8, 100, "9 10", 0}, {10, 100, "", 0}, {11, 100, "7 8 9 10", 6},
		{0, 2, "9 10", 8}, {8, 1, "10", 1}, {0, 0, "", 10},
	} {
		events, last, lost := r.Since(tt.since, tt.limit)
		var texts []string
		for _, e := range events {
			texts = append(texts, e.Text)
			if fmt.Sprint(e.Number) != e.Text {
				t.Errorf("event %s has number %d", e.Text, e.Number)
			}
		}
		if got := strings.Join(texts, " "); got != tt.want || last != 10 || lost != tt.lost {
			t.Errorf("since %d: %s, last %d, lost %d; want %s, lost %d", tt.since, got, last, lost, tt.want, tt.lost)
		}
	}
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for range 100 {
				r.add(Event{})
				r.Since(0, 4)
			}
		})
	}
	wait.Wait()
	if _, last, _ := r.Since(0, 1); last != 410 {
		t.Errorf("%d events", last)
	}
}
