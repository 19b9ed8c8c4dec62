package admin

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/stat"
	"github.com/loomfabric/loom/leaf"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// number gives every counter of a struct a value of its own, from next on.
func number(v reflect.Value, next *uint64) {
	if h, ok := v.Addr().Interface().(*reorder.Histogram); ok {
		h.Add(time.Duration(*next))
		*next++
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[stat.Sizes]() {
			return // for the metrics alone
		}
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				number(v.Field(i), next)
			}
		}
	case reflect.Array:
		for i := range v.Len() {
			number(v.Index(i), next)
		}
	case reflect.Int:
		v.SetInt(int64(*next))
		*next++
	default:
		v.SetUint(*next)
		*next++
	}
}

// Every counter of both sides is in the answer.
func TestConWeaveShowsEveryCounter(t *testing.T) {
	const first = uint64(7_000_001)
	next := first
	c, r := &balance.ConWeaveStats{}, &reorder.Stats{}
	w := dataplane.WorkerStats{
		Schemes:   []leaf.SchemeStats{{Scheme: "conweave-informed", Stats: balance.Stats{Own: c}}},
		Receivers: []leaf.ReceiverStats{{Scheme: "conweave", Stats: r}},
	}
	number(reflect.ValueOf(c).Elem(), &next)
	number(reflect.ValueOf(r).Elem(), &next)
	number(reflect.ValueOf(&w.Leaf.Unsent).Elem(), &next)
	for op := overlay.OpRTTReply; op < overlay.NumOpcodes; op++ {
		number(reflect.ValueOf(&w.Leaf.Sent[op]).Elem(), &next)
		number(reflect.ValueOf(&w.Leaf.Received[op]).Elem(), &next)
		w.Leaf.Known[op] = w.Leaf.Received[op] - uint64(op)
	}
	a := conweave(&dataplane.Stats{Workers: []dataplane.WorkerStats{w}}, &dataplane.ConWeaveState{})
	d := a.DestinationCounters
	for _, x := range []struct{ got, want map[string]uint64 }{
		{a.SourceCounters[0].Family("ignored"), map[string]uint64{"stale_reply": c.StaleReplies, "stale_clear": c.StaleClears}},
		{d.Family("flushes"), map[string]uint64{
			"tail": r.TailFlushes, "expiry": r.Expiries, "overtaken": r.Overtaken, "exhausted": r.Exhausted, "shutdown": r.Flushed}},
		{d.Family("unordered_frames"), map[string]uint64{
			"premature": r.Premature, "late": r.Late, "after_tail": r.AfterTail, "no_queue": r.PassedUnheld, "no_flow": r.NoFlow}},
		{d.Family("control_unsent"), map[string]uint64{
			"bad_leaf": r.BadLeaf, "incapable": w.Leaf.Unsent.Incapable, "no_path": w.Leaf.Unsent.NoPath, "no_frame": w.Leaf.Unsent.NoFrame,
			"over_budget": w.Leaf.Unsent.OverBudget}},
		{d.Family("messages_unknown"), map[string]uint64{"RTT_REPLY": 2, "CLEAR": 3, "NOTIFY": 4, "HELLO": 5, "EXPLORE": 6, "EXTENSION": 7}},
	} {
		if !maps.Equal(x.got, x.want) {
			t.Errorf("by cause %v, want %v", x.got, x.want)
		}
	}
	b, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	for n := first; n < next; n++ {
		if !strings.Contains(string(b), fmt.Sprint(n)) {
			t.Errorf("number %d of %d to %d is not shown\n%s", n, first, next-1, b)
		}
	}
}

// Workers are added up; schemes without counters of ConWeave's are left out.
func TestConWeaveAddsWorkersUp(t *testing.T) {
	worker := func(n uint64) (w dataplane.WorkerStats) {
		own := &balance.ConWeaveStats{Reroutes: n, StaleClears: 2 * n}
		own.ReplyTime.Add(time.Duration(n) * time.Millisecond)
		w.Schemes = []leaf.SchemeStats{
			{Scheme: "ecmp", Stats: balance.Stats{Decisions: n}},
			{Scheme: "conweave", Stats: balance.Stats{Own: own}},
		}
		w.Receivers = []leaf.ReceiverStats{{Scheme: "conweave", Stats: &reorder.Stats{Bytes: n, Expiries: n, Clears: 3 * n}}}
		w.Leaf.Sent[overlay.OpClear] = leaf.Amount{Frames: 3 * n, Bytes: 300 * n}
		w.Leaf.Unsent.NoPath = n
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
	s, d := a.SourceCounters[0], a.DestinationCounters
	if x := s.Times("reply_time"); s.Scheme() != "conweave" || s.Number("reroutes") != 5 || !maps.Equal(s.Family("ignored"), map[string]uint64{"stale_clear": 10}) ||
		x.Count != 2 || x.Max != 4*time.Millisecond || x.Mean != 2500*time.Microsecond || x.P999 != 4*time.Millisecond {
		t.Errorf("source: %s", body)
	}
	if d.Number("arrived_bytes") != 5 || d.Number("clears") != 15 || !maps.Equal(d.Family("flushes"), map[string]uint64{"expiry": 5}) ||
		!maps.Equal(d.Family("control_unsent"), map[string]uint64{"no_path": 5}) || len(d.Family("unordered_frames")) != 0 ||
		!maps.Equal(d.Family("control_bytes"), map[string]uint64{"CLEAR": 1500}) || d.Times("hold_time") != (Times{}) {
		t.Errorf("destination: %s", body)
	}
	if a.ConWeaveState == nil || len(a.Sources) != 1 || a.Sources[0].Reply != time.Millisecond {
		t.Errorf("state %+v", a.ConWeaveState)
	}
}

// A scheme that the API does not know shows what its types' tags say.
func TestSchemeOfItsOwnTypes(t *testing.T) {
	type cells struct {
		Begun uint64 `stat:"cells"`
	}
	type holds struct {
		Waiting int `stat:"waiting_frames,gauge"`
	}
	worker := dataplane.WorkerStats{
		Schemes:   []leaf.SchemeStats{{Scheme: "of-tomorrow", Stats: balance.Stats{Own: &cells{3}}}},
		Receivers: []leaf.ReceiverStats{{Scheme: "of-tomorrow", Stats: &holds{40}}},
	}
	a := stats(&dataplane.Stats{Workers: []dataplane.WorkerStats{worker, worker}})
	if s, r := a.Schemes[0], a.Receivers[0]; s.Scheme() != "of-tomorrow" || s.Own().Number("cells") != 6 || r.Scheme() != "of-tomorrow" || r.Number("waiting_frames") != 80 {
		t.Errorf("%s %s", s, r)
	}
	if own := (Counters{}).Own(); own != nil {
		t.Errorf("a scheme without counters of its own has %s", own)
	}
}

// The names in /v1 are those in the tables: they stay.
func TestNamesStay(t *testing.T) {
	for v, want := range map[any]string{
		&balance.ConWeaveStats{}: "aborts clears cutoffs epochs ignored inactive incapable_frames late_replies moves notifies overflow_frames " +
			"refused replies reply_time requests reroutes unclear",
		&reorder.Stats{}: "arrived_bytes arrived_frames capped_resumes clears control_unsent default_resumes epochs flushes held_bytes held_frames " +
			"hold_time no_queue notifies notifies_spared queues queues_peak queues_taken refusals replies requests rerouted_frames resume_error_early " +
			"resume_error_late tails unmarked_frames unordered_frames waiting_bytes waiting_frames waiting_peak_bytes waiting_peak_frames",
		&leaf.Stats{}: "control_bytes control_frames control_unsent farewells hellos_stale hellos_unproved messages_known messages_received messages_relayed peers_silent round_trip " +
			"wait_overflow_frames waited_frames",
	} {
		if got := strings.Join(slices.Sorted(maps.Keys(NewCounters("", v))), " "); got != want {
			t.Errorf("%T:\n%s, want\n%s", v, got, want)
		}
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
