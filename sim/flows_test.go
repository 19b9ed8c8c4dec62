package sim

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/sim/traffic"
)

// keys lists the keys of a section.
func keys(section any) (out []string) {
	v := reflect.TypeOf(section)
	for i := range v.NumField() {
		key, _, _ := strings.Cut(v.Field(i).Tag.Get("yaml"), ",")
		out = append(out, key)
	}
	return out
}

// TestPatterns counts what the other workloads start.
func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		vocab.Workload
		flows int
		bytes uint64 // that arrive
	}{
		{vocab.Workload{Type: vocab.Bulk, Bytes: 5000}, 16, 16 * 5000},
		{vocab.Workload{Type: vocab.Bulk, From: []string{"L0"}, To: []string{"h9", "h12"}, Bytes: 100, Flows: 3}, 24, 2400},
		{vocab.Workload{Type: vocab.Stride, Stride: 5, Bytes: 1000}, 16, 16_000},
		{vocab.Workload{Type: vocab.Permutation, Bytes: 1000, Flows: 2}, 32, 32_000},
		{vocab.Workload{Type: vocab.AllToAll, Bytes: 100}, 16 * 15, 24_000},
		{vocab.Workload{Type: vocab.AllToAll, From: []string{"h0", "h1", "L1"}, Bytes: 100}, 90, 9000},
		{vocab.Workload{Type: vocab.Incast, From: []string{"h3"}, FanIn: 7, Bytes: 10_000, Repeat: 3}, 21, 30_000},
		{vocab.Workload{Type: vocab.Incast, From: []string{"h3"}, FanIn: 15, Pairs: "any", Bytes: 10_000, Repeat: 2, Interval: us(100), Connections: 1}, 30, 20_000},
	} {
		s := small()
		s.Workloads = []vocab.Workload{c.Workload}
		r := must(t, s)
		if r.Flows != c.flows || r.Unfinished != 0 || r.Transport["goodput_bytes"] != c.bytes {
			t.Errorf("%+v: %d flows of %d bytes, %d unfinished; want %d of %d", c.Workload, r.Flows, r.Transport["goodput_bytes"], r.Unfinished, c.flows, c.bytes)
		}
	}
}

// TestTraceRepeats: a trace of a generated workload gives the same run, over new
// connections and over persistent ones, alone and as another workload's neighbour.
func TestTraceRepeats(t *testing.T) {
	for _, connections := range []int{0, 2} {
		s := small()
		s.Scheme, s.Workloads[0].Connections = "conga", connections
		s.Warmup, s.Duration = us(300), us(1500)
		name := filepath.Join(t.TempDir(), "t.csv")
		f, err := os.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		source, err := Flows(s)
		if err != nil {
			t.Fatal(err)
		}
		n, err := traffic.WriteTrace(f, source, connections > 0)
		if err != nil || n == 0 || f.Close() != nil {
			t.Fatal(n, err)
		}
		want := must(t, s)
		again := *s
		again.Workloads = []vocab.Workload{{Name: want.Workloads[0].Name, Type: vocab.Trace, File: name}}
		got := must(t, &again)
		want.Load, got.Load = 0, 0
		if a, b := text(t, want), text(t, got); a != b {
			t.Errorf("%d connections: generated\n%s\nrepeated\n%s", connections, a, b)
		}
		// vocab.Bulk pairs each host with itself here, which leaves none.
		again.Workloads = []vocab.Workload{{Type: vocab.Bulk, Bytes: 1000}, again.Workloads[0]}
		if both := must(t, &again); both.Workloads[0].Flows != 0 || both.Workloads[1].Flows != want.Flows {
			t.Errorf("%d connections: workloads %+v, want all of the trace's %d flows with the second", connections, both.Workloads, want.Flows)
		}
	}
}

// A trace may be packed.
func TestPackedTrace(t *testing.T) {
	s := small()
	source, err := Flows(s)
	if err != nil {
		t.Fatal(err)
	}
	plain := filepath.Join(t.TempDir(), "t.csv")
	packed := plain + ".gz"
	var csv, gz bytes.Buffer
	if _, err := traffic.WriteTrace(&csv, source, false); err != nil {
		t.Fatal(err)
	}
	pack := gzip.NewWriter(&gz)
	if _, err := pack.Write(csv.Bytes()); err != nil || pack.Close() != nil {
		t.Fatal(err)
	}
	if os.WriteFile(plain, csv.Bytes(), 0o644) != nil || os.WriteFile(packed, gz.Bytes(), 0o644) != nil {
		t.Fatal("cannot write")
	}
	run := func(name string) string {
		s.Workloads = []vocab.Workload{{Type: vocab.Trace, File: name}}
		return text(t, must(t, s))
	}
	if a, b := run(plain), run(packed); a != b || len(a) < 100 {
		t.Errorf("plain\n%s\npacked\n%s", a, b)
	}
}

// A lower threshold of PFC makes switches pause senders more often.
func TestPFCAlpha(t *testing.T) {
	pauses := func(alpha float64) uint64 {
		s := lossless(2)
		s.Topology.PFCAlpha, s.Topology.Buffer, s.Transport.CongestionControl = alpha, 4<<20, "none"
		s.Workloads = []vocab.Workload{{Type: vocab.Incast, From: []string{"h0"}, FanIn: 4, Bytes: 4 << 20}}
		return must(t, s).PFC["pauses"]
	}
	if low, high, usual := pauses(0.02), pauses(0.5), pauses(0); low <= usual || usual <= high || pauses(0.125) != usual {
		t.Errorf("%d pauses with 0.02, %d by default, %d with 0.5", low, usual, high)
	}
}

// TestSeeds: arrivals, sizes and pairs depend on the seed, not on the scheme.
func TestSeeds(t *testing.T) {
	record := func(seed uint64, scheme string) []traffic.Flow {
		s := small()
		s.Seed, s.Scheme = seed, scheme
		source, err := Flows(s)
		if err != nil {
			t.Fatal(err)
		}
		return record(source, 1000)
	}
	a, b, c := record(1, "ecmp"), record(1, "conga"), record(2, "ecmp")
	if !slices.Equal(a, b) || slices.Equal(a, c) || len(a) == 0 {
		t.Errorf("%d flows, %d with another scheme, %d with another seed", len(a), len(b), len(c))
	}
}

// record returns the flows of a source, at most limit of them.
func record(s traffic.Source, limit int) (flows []traffic.Flow) {
	for len(flows) < limit {
		f, ok := s.Next()
		if !ok {
			break
		}
		flows = append(flows, f)
	}
	return flows
}
