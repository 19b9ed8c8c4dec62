package admin

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// number gives every counter of a struct a value of its own, from next on.
func number(t *testing.T, v reflect.Value, next *uint64) {
	for i := range v.NumField() {
		f, name := v.Field(i), v.Type().Field(i).Name
		switch x := f.Addr().Interface().(type) {
		case *uint64:
			*x = *next
		case *int:
			*x = int(*next)
		case *[overlay.OpExtension + 1]uint64:
			for _, op := range []overlay.Opcode{overlay.OpRTTReply, overlay.OpClear, overlay.OpNotify} {
				x[op] = *next
				*next++
			}
			continue
		case *reorder.Histogram:
			x.Add(time.Duration(*next))
		default:
			t.Fatalf("%s is of a type that the test does not know", name)
		}
		*next++
	}
}

// Every counter of both sides is in the answer. What is now and what was the most
// stands in the state, which the node answers.
func TestConWeaveShowsEveryCounter(t *testing.T) {
	next := uint64(7_000_001)
	var w dataplane.WorkerStats
	w.Schemes = []dataplane.SchemeStats{{Scheme: "conweave-conga"}}
	number(t, reflect.ValueOf(&w.Schemes[0].ConWeave).Elem(), &next)
	number(t, reflect.ValueOf(&w.Order).Elem(), &next)
	from := next
	number(t, reflect.ValueOf(&w.Reorder).Elem(), &next)
	state := make(map[uint64]bool)
	r, c := &w.Reorder, &w.Schemes[0].ConWeave
	for _, n := range []int{r.InUse, r.InUsePeak, r.Waiting, r.WaitingPeak, int(r.WaitingBytes), int(r.WaitingBytesPeak)} {
		state[uint64(n)] = true
	}
	a := conweave(&dataplane.Stats{Workers: []dataplane.WorkerStats{w}}, &dataplane.ConWeaveState{})
	for _, x := range []struct{ got, want map[string]uint64 }{
		{a.SourceCounters[0].Ignored, map[string]uint64{
			"stale_reply": c.StaleReplies, "stale_clear": c.StaleClears, "unknown_flow": c.UnknownFlow,
			"unknown_leaf": c.UnknownLeaf, "unknown_path": c.UnknownPath, "unknown_opcode": c.UnknownOpcode}},
		{a.DestinationCounters.Flushes, map[string]uint64{
			"tail": r.TailFlushes, "expiry": r.Expiries, "overtaken": r.Overtaken, "exhausted": r.Exhausted, "shutdown": r.Flushed}},
		{a.DestinationCounters.UnorderedFrames, map[string]uint64{
			"premature": r.Premature, "late": r.Late, "after_tail": r.AfterTail, "no_queue": r.PassedInLieu, "no_flow": r.NoFlow}},
		{a.DestinationCounters.ControlUnsent, map[string]uint64{
			"bad_leaf": r.BadLeaf, "incapable": w.Order.Incapable, "no_path": w.Order.NoPath, "no_frame": w.Order.NoFrame}},
	} {
		if !maps.Equal(x.got, x.want) {
			t.Errorf("by cause %v, want %v", x.got, x.want)
		}
	}
	b, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	for n := uint64(7_000_001); n < next; n++ {
		if shown := strings.Contains(string(b), fmt.Sprint(n)); shown == state[n] {
			t.Errorf("number %d (of the destination: from %d on) is shown: %v\n%s", n, from, shown, b)
		}
	}
}

// Workers are added up, schemes without a source side left out.
func TestConWeaveAddsWorkersUp(t *testing.T) {
	worker := func(n uint64) dataplane.WorkerStats {
		var w dataplane.WorkerStats
		w.Schemes = []dataplane.SchemeStats{
			{Scheme: "ecmp", Stats: balance.Stats{Decisions: n}},
			{Scheme: "conweave", Stats: balance.Stats{ConWeave: balance.ConWeaveStats{Reroutes: n, UnknownFlow: 2 * n}}},
		}
		w.Schemes[1].ConWeave.ReplyTime.Add(time.Duration(n) * time.Millisecond)
		w.Reorder = reorder.Stats{Bytes: n, Expiries: n, Clears: 3 * n}
		w.Reorder.ControlBytes[overlay.OpClear] = 300 * n
		w.Order.NoPath = n
		return w
	}
	n := &fakeNode{stats: &dataplane.Stats{Workers: []dataplane.WorkerStats{worker(1), worker(4)}}}
	code, body := ask(t, fakeServer(n, true, fakeTables()), "GET", "/v1/conweave?limit=9")
	var a ConWeave
	if err := json.Unmarshal([]byte(body), &a); err != nil || code != 200 {
		t.Fatalf("%d %s: %v", code, body, err)
	}
	if n.limit != 9 {
		t.Errorf("limit %d", n.limit)
	}
	if len(a.SourceCounters) != 1 {
		t.Fatalf("sources: %s", body)
	}
	s, d := &a.SourceCounters[0], &a.DestinationCounters
	if s.Scheme != "conweave" || s.Reroutes != 5 || !reflect.DeepEqual(s.Ignored, map[string]uint64{"unknown_flow": 10}) ||
		s.ReplyTime.Count != 2 || s.ReplyTime.Max != 4*time.Millisecond || s.ReplyTime.Mean != 2500*time.Microsecond || s.ReplyTime.P999 != 4*time.Millisecond {
		t.Errorf("source: %+v", s)
	}
	if d.ArrivedBytes != 5 || !reflect.DeepEqual(d.Flushes, map[string]uint64{"expiry": 5}) || !reflect.DeepEqual(d.ControlUnsent, map[string]uint64{"no_path": 5}) ||
		len(d.UnorderedFrames) != 0 || len(d.Control) != 3 || d.Control[1] != (ConWeaveControl{"CLEAR", 15, 1500}) || d.HoldTime != (Times{}) {
		t.Errorf("destination: %+v", d)
	}
	if a.ConWeaveState == nil || len(a.Sources) != 1 || a.Sources[0].Reply != time.Millisecond {
		t.Errorf("state %+v", a.ConWeaveState)
	}
}

func TestTimes(t *testing.T) {
	var h reorder.Histogram
	for i := range 1000 {
		h.Add(time.Duration(i+1) * time.Microsecond)
	}
	got := times(&h)
	if got.Count != 1000 || got.Mean != 500500*time.Nanosecond || got.Max != time.Millisecond {
		t.Errorf("%+v", got)
	}
	for p, v := range map[time.Duration]time.Duration{500: got.P50, 900: got.P90, 990: got.P99, 999: got.P999} {
		if exact := p * time.Microsecond; v < exact || v > exact+exact/4 {
			t.Errorf("%v per mille: %v", p, v)
		}
	}
}
