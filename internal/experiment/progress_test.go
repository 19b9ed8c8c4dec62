package experiment

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/measure"
	"github.com/loomfabric/loom/internal/status"
)

func TestProgress(t *testing.T) {
	events := []Event{
		{ID: "a", Begins: true, Total: 3, Running: []string{"a"}},
		{ID: "b", Begins: true, Total: 3, Running: []string{"a", "b"}},
		{ID: "a", Result: &measure.Result{PacketHops: 3e6}, Wall: 1500 * time.Millisecond, Done: 1, Total: 3, Left: 90 * time.Second, Running: []string{"b"}},
		{ID: "b", Err: errors.New("no room\nat all"), Done: 2, Total: 3, Left: time.Second},
		{ID: "c", Result: &measure.Result{PacketHops: 1e6}, Wall: 500 * time.Millisecond, Done: 3, Total: 3},
	}
	for _, tt := range []struct {
		terminal bool
		want     string
	}{
		{false, "1/3  a in 1.5s, 1m30s left, 2.00 M hops/s\nb failed: no room\n3/3  c in 500ms, 2.00 M hops/s\n"},
		{true, "\r\x1b[K0/3  a\r\x1b[K0/3  a b\r\x1b[K1/3, 1m30s left, 2.00 M hops/s  b\r\x1b[Kb failed: no room\n" +
			"\r\x1b[K2/3, 1s left, 2.00 M hops/s  \r\x1b[K3/3, 2.00 M hops/s  \n"},
	} {
		var b bytes.Buffer
		p := &Progress{Line: &status.Line{Out: &b, Terminal: tt.terminal}}
		for _, e := range events {
			p.Report(e)
		}
		p.End()
		if b.String() != tt.want {
			t.Errorf("%q\nwant %q", b.String(), tt.want)
		}
	}
}
