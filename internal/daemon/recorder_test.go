package daemon

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/events"
	"github.com/loomfabric/loom/internal/record"
)

// fakeRecorded has what the test says.
type fakeRecorded struct {
	next          dataplane.RecordBatch
	asked, answer chan struct{} // nil: it answers at once
}

func (*fakeRecorded) Record() {}
func (f *fakeRecorded) Collect(b *dataplane.RecordBatch, _ bool) {
	if f.asked != nil {
		close(f.asked)
		<-f.answer
	}
	*b = f.next
}
func (*fakeRecorded) Recorded() dataplane.Recorded {
	return dataplane.Recorded{
		Leaf: true, VTEP: netip.MustParseAddr("10.0.0.1"), Ports: []dataplane.PortConfig{{Name: "up0", Kind: dataplane.Uplink}, {}}, Rates: []uint64{1e9, 0},
		Peers: []netip.Addr{netip.MustParseAddr("10.0.0.2")}, Scheme: "conga",
	}
}

func fakeRecorder(t *testing.T) (*recorder, *fakeRecorded) {
	kept, plane := events.NewRing(8), &fakeRecorded{}
	r := newRecorder("L0", "leafd", "v1", t.TempDir(), slog.New(events.Keep(slog.DiscardHandler, kept)).With("node", "L0"), kept)
	r.plane = plane
	plane.next.Ports = make([]dataplane.RecordPort, 2)
	return r, plane
}

// What was collected and logged is in the dump, in wall-clock time.
func TestRecorderDumps(t *testing.T) {
	r, plane := fakeRecorder(t)
	b := &plane.next
	b.At, b.Ports[0].TxBytes, b.Drops[drop.NoRoute] = 5e9, 77, 3
	b.Flows = []dataplane.FlowRecord{{Hash: 9, Peer: netip.MustParseAddr("10.0.0.2"), First: 3e9, Last: 4e9, Frames: 2, Bytes: 2000}}
	b.Decisions = []dataplane.DecisionRecord{{At: 5e9, Scheme: "conga", Uplink: 2, Uplinks: 1<<2 | 1<<4}}
	b.Frames = []dataplane.DropRecord{{At: 5e9, Reason: drop.NoRoute, Len: 3, Data: [dataplane.RecordBytes]byte{1, 2, 3}}}
	r.log.With("port", "up0").Warn("port down", "ifindex", 7)
	var out bytes.Buffer
	if err := r.write(&out); err != nil {
		t.Fatal(err)
	}
	d, err := record.Read(&out)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().UnixNano()
	if d.Node != "L0" || d.VTEP != "10.0.0.1" || d.Scheme != "conga" || fmt.Sprint(d.Ports) != "[{0 up0 uplink 1000000000}]" || fmt.Sprint(d.Peers) != "[10.0.0.2]" {
		t.Errorf("header %+v", d.Header)
	}
	if f := d.Flows[0]; now-f.Start < 2e9 || now-f.Start > 60e9 || f.End-f.Start != 1e9 || f.Src != "10.0.0.1" || f.Dst != "10.0.0.2" || f.Bytes != 2000 {
		t.Errorf("flow %+v at %d", f, now)
	}
	if s := d.Samples[0]; s.Ports[0].TxBytes != 77 || s.Drops["no_route"] != 3 || len(s.Ports) != 1 {
		t.Errorf("sample %+v", s)
	}
	if x := d.Decisions[0]; len(x.Uplinks) != 2 || x.Uplinks[1].Uplink != 4 {
		t.Errorf("decision %+v", x)
	}
	if len(d.Events) != 1 || d.Events[0].Text != "port down ifindex=7 port=up0" || d.Events[0].Level != "WARN" || !bytes.Equal(d.Drops[0].Data, []byte{1, 2, 3}) {
		t.Errorf("events %+v, drops %+v", d.Events, d.Drops)
	}
}

// A worker that does not answer the recorder keeps nobody from logging: the log is where
// people read about it.
func TestRecorderDoesNotHoldTheLog(t *testing.T) {
	r, plane := fakeRecorder(t)
	plane.asked, plane.answer = make(chan struct{}), make(chan struct{})
	done, logged := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		r.dump("test", true)
	}()
	<-plane.asked
	go func() {
		defer close(logged)
		r.log.Warn("a worker is stuck")
	}()
	select {
	case <-logged:
	case <-time.After(10 * time.Second):
		t.Error("the log waits for a worker")
	}
	close(plane.answer)
	<-done
	<-logged
}

// A burst of drops is one: much within a second, compared with what came, and not again
// for a while.
func TestRecorderFindsBursts(t *testing.T) {
	r, plane := fakeRecorder(t)
	at := time.Now()
	step := func(drops, frames uint64) bool {
		plane.next.Ports[0].Dropped += drops
		plane.next.Ports[0].RxFrames += frames
		r.collect(false)
		at = at.Add(time.Second)
		return r.bursts(at)
	}
	for i, s := range []struct {
		drops, frames uint64
		want          bool
	}{{1e6, 1e6, false}, {0, 1e6, false}, {999, 1000, false}, {2000, 1e6, false}, {20000, 1e6, true}, {20000, 1e6, false}} {
		if got := step(s.drops, s.frames); got != s.want {
			t.Errorf("second %d: %v", i, got)
		}
	}
	at = at.Add(burstRest)
	if !step(20000, 1e6) {
		t.Error("no burst is found any more")
	}
}

// The directory has a bounded number of records: the newest ones.
func TestRecorderKeepsFewFiles(t *testing.T) {
	r, _ := fakeRecorder(t)
	other := filepath.Join(r.dir, "L1-20200101T000000.000.loom")
	longer := filepath.Join(r.dir, "L0-b-20200101T000000.000.loom") // L0-b's
	for _, file := range []string{other, longer} {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at := time.Now()
	for range recordFiles + 3 {
		at = at.Add(time.Second)
		path, err := r.save("test", at)
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		d, err := record.Read(f)
		f.Close()
		if err != nil || d.Why != "test" {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	files, err := filepath.Glob(filepath.Join(r.dir, "*.loom"))
	if err != nil || len(files) != recordFiles+2 || files[recordFiles] != longer || files[recordFiles+1] != other {
		t.Errorf("%v, %v", files, err)
	}
	r.dir = "/nowhere"
	if _, err := r.save("test", at); err == nil || !strings.Contains(err.Error(), "record.dir") {
		t.Errorf("%v", err)
	}
}

func TestLastKeepsTheLast(t *testing.T) {
	l := last[int]{size: 3}
	for i := range 8 {
		l.add(i)
	}
	if got := fmt.Sprint(l.list()); got != "[5 6 7]" {
		t.Error(got)
	}
}

// BenchmarkRecorderMemory fills a recorder, of a node of 8 ports and of one of 64, and says
// what it takes besides the log.
func BenchmarkRecorderMemory(b *testing.B) {
	for _, ports := range []int{8, 64} {
		b.Run(fmt.Sprintf("ports=%d", ports), func(b *testing.B) {
			plane := &fullRecorded{ports: ports}
			for b.Loop() {
				var before, after runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				r := newRecorder("L0", "leafd", "v1", "", nil, nil)
				r.plane = plane
				for range recordSamples {
					r.collect(false)
				}
				runtime.GC()
				runtime.ReadMemStats(&after)
				b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/1e6, "MB")
				if len(r.flows.buf) != recordFlows || len(r.decisions.buf) != recordDecisions || len(r.drops.buf) != recordDropped || len(r.samples.buf) != recordSamples {
					b.Fatal("there is room left")
				}
			}
		})
	}
}

// fullRecorded has something of all in each batch.
type fullRecorded struct{ ports int }

func (*fullRecorded) Record() {}

func (f *fullRecorded) Collect(b *dataplane.RecordBatch, _ bool) {
	peer := netip.MustParseAddr("10.0.0.2")
	b.Ports, b.Flows, b.Decisions, b.Frames = make([]dataplane.RecordPort, f.ports), b.Flows[:0], b.Decisions[:0], b.Frames[:0]
	b.Drops[drop.NoRoute]++
	for range 32 {
		b.Flows = append(b.Flows, dataplane.FlowRecord{Peer: peer})
		b.Decisions = append(b.Decisions, dataplane.DecisionRecord{Peer: peer, Uplinks: 0xff})
		b.Frames = append(b.Frames, dataplane.DropRecord{Len: dataplane.RecordBytes})
	}
}

func (f *fullRecorded) Recorded() (x dataplane.Recorded) {
	x.VTEP = netip.MustParseAddr("10.0.0.1")
	for i := range f.ports {
		x.Ports = append(x.Ports, dataplane.PortConfig{Name: fmt.Sprint("p", i)})
	}
	return x
}
