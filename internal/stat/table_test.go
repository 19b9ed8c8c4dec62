package stat

import (
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"
)

// hist is a histogram as far as this package is concerned.
type hist struct {
	N   uint64
	Max time.Duration `stat:",max"`
}

func (h *hist) Quantile(float64) time.Duration { return h.Max }

// sides is an array whose places have names but for the first.
type sides [3]uint64

func (sides) Index(i int) (label, value string) { return "side", []string{"", "left", "right"}[i] }

type room struct {
	_ struct{} `stat:"inner"`

	Kicks uint64 `help:"Kicks."`
}

type counted struct {
	_ struct{} `stat:"room"`

	Name     string
	List     []room
	Late     uint64 `stat:"late_replies" help:"Replies that came late."`
	Sent     Amount `help:"sent"`
	Tail     uint64 `stat:"flushes{cause=tail}" help:"Flushes." about:"The TAIL came."`
	Expiry   uint64 `stat:"flushes{cause=expiry}" about:"Time was over."`
	Plain    uint64 `stat:"plain" unit:"frames"`
	Use      int    `stat:"use,gauge"`
	Peak     uint64 `stat:"peak_bytes,max" unit:"bytes"`
	Most     uint64 `stat:"most,max" metric:"-"`
	BySide   sides  `stat:"by_side,seen" metric:"loom_other"`
	Hold     hist   `stat:"hold_time" metric:"hold"`
	Grace    time.Duration
	Busy     time.Duration `stat:"busy,counter"`
	Since    time.Time     `stat:"since_timestamp"`
	Up       bool
	Share    float64 `stat:"-,max"`
	RXFull   uint64
	In       room
	hidden   uint64
	Another  struct{ Deep uint64 } `stat:",inline"`
	Embedded struct{ Deep uint64 } `stat:"embedded"`
}

func TestTable(t *testing.T) {
	var got []string
	table := TableOf(&counted{}, "ignored")
	for _, f := range table.Fields {
		got = append(got, strings.Join([]string{f.Key(), f.Metric, map[Kind]string{Counter: "counter", Gauge: "gauge", Times: "times"}[f.Kind], f.Label, f.Help, f.About}, "|"))
	}
	want := []string{
		"late_replies|loom_room_late_replies_total|counter||Replies that came late.|",
		"sent_frames|loom_room_sent_frames_total|counter||Frames sent.|",
		"sent_bytes|loom_room_sent_bytes_total|counter||Bytes of frames sent.|",
		"flushes_tail|loom_room_flushes_total|counter|cause|Flushes.|The TAIL came.",
		"flushes_expiry|loom_room_flushes_total|counter|cause|Flushes.|Time was over.",
		"plain|loom_room_plain_frames_total|counter|||",
		"use|loom_room_use|gauge|||",
		"peak_bytes|loom_room_peak_bytes|gauge|||",
		"most||gauge|||",
		"by_side_left|loom_other_total|counter|side||",
		"by_side_right|loom_other_total|counter|side||",
		"hold_time|loom_room_hold_seconds|times|||",
		"grace|loom_room_grace_seconds|gauge|||",
		"busy|loom_room_busy_seconds_total|counter|||",
		"since_timestamp|loom_room_since_timestamp_seconds|gauge|||",
		"up|loom_room_up|gauge|||",
		"rx_full|loom_room_rx_full_total|counter|||",
		"kicks|loom_inner_kicks_total|counter||Kicks.|",
		"deep|loom_room_deep_total|counter|||",
		"embedded_deep|loom_room_embedded_deep_total|counter|||",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("rows are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if again := TableOf(&counted{}, "ignored"); again != table || table.Name != "room" {
		t.Errorf("table %q is made anew: %v", table.Name, again != table)
	}
	type nameless struct{ A uint64 }
	for _, name := range []string{"one", "two"} {
		if x := TableOf(&nameless{}, name); x.Name != name || x.Fields[0].Metric != "loom_"+name+"_a_total" {
			t.Errorf("table %q has metric %s", x.Name, x.Fields[0].Metric)
		}
	}
}

func TestValues(t *testing.T) {
	c := &counted{
		Late: 1, Sent: Amount{2, 3}, Tail: 4, Use: -5, Peak: 6, BySide: sides{7, 8, 9}, Hold: hist{N: 10, Max: 11},
		Grace: 1500 * time.Millisecond, Since: time.Unix(100, 5e8), Up: true, Busy: 250 * time.Millisecond, hidden: 12, In: room{Kicks: 13},
	}
	want := map[string]uint64{
		"late_replies": 1, "sent_frames": 2, "sent_bytes": 3, "flushes_tail": 4, "flushes_expiry": 0, "plain": 0, "use": 0, "peak_bytes": 6, "most": 0,
		"by_side_left": 8, "by_side_right": 9, "grace": 1500e6, "busy": 250e6, "rx_full": 0, "kicks": 13, "deep": 0, "embedded_deep": 0,
	}
	if got := maps.Collect(Counters(c)); !maps.Equal(got, want) {
		t.Errorf("counters %v, want %v", got, want)
	}
	numbers := map[string]float64{"grace": 1.5, "since_timestamp": 100.5, "up": 1, "use": 0, "late_replies": 1}
	table := TableOf(c, "")
	for i := range table.Fields {
		f := &table.Fields[i]
		if x, ok := numbers[f.Key()]; ok && f.Number(c) != x {
			t.Errorf("%s is %v, want %v", f.Key(), f.Number(c), x)
		}
	}
}

// A type that makes no table is found when it is looked at first.
func TestMistakesPanic(t *testing.T) {
	for name, f := range map[string]func(){
		"two of one name": func() {
			TableOf(&struct{ A, B uint64 }{}, "ok")
			TableOf(&struct {
				A uint64 `stat:"b"`
				B uint64
			}{}, "x")
		},
		"places without names": func() { TableOf(&struct{ A [2]uint64 }{}, "x") },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("it is taken")
				}
			}()
			f()
		})
	}
}
