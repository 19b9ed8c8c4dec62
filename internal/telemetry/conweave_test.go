package telemetry

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// A histogram's buckets are what counting the times one by one comes to.
func TestHistograms(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	f := newFake()
	hold := []*reorder.Histogram{&received(f.stats.Workers, 0).Hold, &received(f.stats.Workers, 1).Hold}
	*hold[0], *hold[1] = reorder.Histogram{}, reorder.Histogram{}
	times := []time.Duration{0, 255, 256, 511, 512, time.Microsecond, 1023, 1024, 3 * time.Second, 4 * time.Second, time.Minute}
	for range 1000 {
		times = append(times, time.Duration(1)<<rng.IntN(34)+time.Duration(rng.IntN(1000)))
	}
	var sum time.Duration
	for i, d := range times {
		hold[i%2].Add(d)
		sum += d
	}
	got := values(gather(t, f.options()))
	want := map[string]float64{
		"loom_reorder_hold_seconds_count{}": float64(len(times)),
		"loom_reorder_hold_seconds_sum{}":   sum.Seconds(),
	}
	// Bounds are powers of two from 256 ns on, and what is halfway between them.
	for bound := 256 * time.Nanosecond; bound < 4*time.Second; bound *= 2 {
		for _, le := range []time.Duration{bound, bound * 3 / 2} {
			below := 0
			for _, d := range times {
				if d < le {
					below++
				}
			}
			want[fmt.Sprintf("loom_reorder_hold_seconds_bucket{le=%q}", strconv.FormatFloat(le.Seconds(), 'g', -1, 64))] = float64(below)
		}
	}
	delete(want, `loom_reorder_hold_seconds_bucket{le="3.84e-07"}`) // its bucket ends at the next bound
	for name, v := range want {
		if g, ok := got[name]; !ok || g != v {
			t.Errorf("%s is %v (shown: %v), want %v", name, g, ok, v)
		}
	}
}

// Each cause and reason has its own counter.
func TestConWeaveLabels(t *testing.T) {
	f := newFake()
	f.stats.Workers = f.stats.Workers[:1]
	w := &f.stats.Workers[0]
	r, s := received(f.stats.Workers, 0), own(f.stats.Workers, 0)
	got := values(gather(t, f.options()))
	for name, want := range map[string]uint64{
		`loom_reorder_flushes_total{cause="tail"}`:                            r.TailFlushes,
		`loom_reorder_flushes_total{cause="expiry"}`:                          r.Expiries,
		`loom_reorder_flushes_total{cause="overtaken"}`:                       r.Overtaken,
		`loom_reorder_flushes_total{cause="exhausted"}`:                       r.Exhausted,
		`loom_reorder_flushes_total{cause="shutdown"}`:                        r.Flushed,
		`loom_reorder_unordered_frames_total{cause="premature"}`:              r.Premature,
		`loom_reorder_unordered_frames_total{cause="late"}`:                   r.Late,
		`loom_reorder_unordered_frames_total{cause="after_tail"}`:             r.AfterTail,
		`loom_reorder_unordered_frames_total{cause="no_queue"}`:               r.PassedUnheld,
		`loom_reorder_unordered_frames_total{cause="no_flow"}`:                r.NoFlow,
		`loom_reorder_control_unsent_total{reason="bad_leaf"}`:                r.BadLeaf,
		`loom_reorder_control_unsent_total{reason="incapable"}`:               w.Leaf.Unsent.Incapable,
		`loom_reorder_control_unsent_total{reason="no_path"}`:                 w.Leaf.Unsent.NoPath,
		`loom_reorder_control_unsent_total{reason="no_frame"}`:                w.Leaf.Unsent.NoFrame,
		`loom_reorder_control_frames_total{opcode="RTT_REPLY"}`:               w.Leaf.Sent[overlay.OpRTTReply].Frames,
		`loom_reorder_control_frames_total{opcode="CLEAR"}`:                   w.Leaf.Sent[overlay.OpClear].Frames,
		`loom_reorder_control_frames_total{opcode="NOTIFY"}`:                  w.Leaf.Sent[overlay.OpNotify].Frames,
		`loom_reorder_control_bytes_total{opcode="NOTIFY"}`:                   w.Leaf.Sent[overlay.OpNotify].Bytes,
		`loom_conweave_ignored_total{reason="stale_reply",scheme="conweave"}`: s.StaleReplies,
		`loom_conweave_ignored_total{reason="stale_clear",scheme="conweave"}`: s.StaleClears,
		`loom_conweave_replies_total{scheme="conweave"}`:                      s.Replies,
		`loom_conweave_late_replies_total{scheme="conweave"}`:                 s.LateReplies,
		`loom_reorder_resume_error_seconds_count{tail="early"}`:               r.TailEarly.N,
		`loom_reorder_resume_error_seconds_count{tail="late"}`:                r.TailLate.N,
		`loom_reorder_port_waiting_depth_bytes_sum{port="host0"}`:             w.Waiting[0].BytesDepth.Sum,
		`loom_reorder_port_waiting_depth_bytes_count{port="flood"}`:           w.Waiting[2].BytesDepth.N(),
	} {
		if v, ok := got[name]; !ok || v != float64(want) {
			t.Errorf("%s is %v (shown: %v), want %v", name, v, ok, want)
		}
	}
}
