package roce

import (
	"container/heap"
	"flag"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/mono"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the random tests; 0: a new one each time")

func newRand(t testing.TB) *rand.Rand {
	t.Helper()
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("replay with -seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// wire is a path with delays: what is on it, the first to arrive first.
type wire []flight

type flight struct {
	at    mono.Time
	order int // of equal times
	bytes []byte
}

func (w wire) Len() int { return len(w) }
func (w wire) Less(i, j int) bool {
	return w[i].at < w[j].at || w[i].at == w[j].at && w[i].order < w[j].order
}
func (w wire) Swap(i, j int) { w[i], w[j] = w[j], w[i] }
func (w *wire) Push(x any)   { *w = append(*w, x.(flight)) }
func (w *wire) Pop() any     { old := *w; x := old[len(old)-1]; *w = old[:len(old)-1]; return x }

// network is a sender and a receiver with a path each way.
type network struct {
	t        *testing.T
	rng      *rand.Rand
	s        *Sender
	r        Receiver
	to, back wire
	order    int
	now      mono.Time
	loss     float64
	delay    func() time.Duration

	sequences []uint64 // of requests, as they arrived
	data      uint64
	done      []uint64 // sizes of whole messages
	completed int
}

func (n *network) put(w *wire, p Packet) {
	b := p.Append(nil)
	if n.rng.Float64() < n.loss {
		return
	}
	n.order++
	heap.Push(w, flight{n.now.Add(n.delay()), n.order, b})
}

// run sends a packet each microsecond until all messages are acknowledged.
func (n *network) run() {
	for steps := 0; n.s.Backlog() > 0; steps++ {
		if steps > 2_000_000 {
			n.t.Fatalf("%d packets are not acknowledged after %v", n.s.Backlog(), n.now.Sub(0))
		}
		n.now = n.now.Add(time.Microsecond)
		n.s.Expire(n.now)
		if n.s.Ready() {
			n.put(&n.to, n.s.Send(n.now))
		}
		for len(n.to) > 0 && n.to[0].at <= n.now {
			n.arrive(heap.Pop(&n.to).(flight).bytes)
		}
		for len(n.back) > 0 && n.back[0].at <= n.now {
			var p Packet
			if err := p.Parse(heap.Pop(&n.back).(flight).bytes); err != nil {
				n.t.Fatal(err)
			}
			n.completed += n.s.Acknowledged(n.now, &p)
		}
	}
}

func (n *network) arrive(b []byte) {
	var p Packet
	if err := p.Parse(b); err != nil {
		n.t.Fatal(err)
	}
	n.sequences = append(n.sequences, p.Sequence)
	a := n.r.Arrive(&p)
	n.data += a.Data
	if a.Complete {
		n.done = append(n.done, p.Size)
	}
	if a.Answer {
		n.put(&n.back, a.Reply)
	}
}

// reordered counts by definition: packets of which one that was sent later is
// before them.
func reordered(sequences []uint64) (count, sum, furthest uint64) {
	for i, s := range sequences {
		latest := s
		for _, before := range sequences[:i] {
			latest = max(latest, before)
		}
		if latest > s {
			count++
			sum += latest - s
			furthest = max(furthest, latest-s)
		}
	}
	return count, sum, furthest
}

func newNetwork(t *testing.T, rng *rand.Rand, window uint64) *network {
	cfg := Config{QP: 0xabcdef, MTU: 256, Workload: 3, Window: window, Timeout: 500 * time.Microsecond}
	return &network{t: t, rng: rng, s: NewSender(cfg), now: mono.Time(rng.Int64N(1 << 40))}
}

// post queues messages of random sizes.
func (n *network) post(count int) (sizes []uint64, sum uint64) {
	for range count {
		size := 1 + n.rng.Uint64N(3000)
		n.s.Post(n.now, size)
		sizes = append(sizes, size)
		sum += size
	}
	return sizes, sum
}

// TestGoBackN: whatever paths do to packets and answers, every message is
// delivered once, whole and in order, and reordering is counted as its definition
// says.
func TestGoBackN(t *testing.T) {
	rng := newRand(t)
	for range 60 {
		n := newNetwork(t, rng, 1+rng.Uint64N(64))
		n.loss = []float64{0, 0.01, 0.2}[rng.IntN(3)]
		spread := []int64{1, 3, 100}[rng.IntN(3)]
		n.delay = func() time.Duration { return 20*time.Microsecond + time.Duration(rng.Int64N(spread)*1000) }
		// PSNs wrap in some runs.
		start := rng.Uint64N(3) * (psnMask - 20)
		n.s.una, n.s.next, n.s.top, n.s.end = start, start, start, start
		n.r.expected = PSN(start & psnMask)
		sizes, sum := n.post(1 + rng.IntN(40))
		n.run()
		if !slices.Equal(n.done, sizes) || n.data != sum || n.completed != len(sizes) || len(n.s.messages) != 0 {
			t.Fatalf("loss %v, spread %d µs: %d of %d messages, %d of %d bytes, %d acknowledged",
				n.loss, spread, len(n.done), len(sizes), n.data, sum, n.completed)
		}
		got := n.r.Stats()
		count, total, furthest := reordered(n.sequences)
		if got.Packets != uint64(len(n.sequences)) || got.Reordered != count || got.DistanceSum != total || got.DistanceMax != furthest {
			t.Fatalf("counted %+v, the definition says %d reordered, distances %d, at most %d", got, count, total, furthest)
		}
		if _, ok := n.s.Deadline(); ok {
			t.Error("a time-out is awaited although all is acknowledged")
		}
	}
}

// TestInOrder: on a path that keeps order and loses nothing, nothing is sent
// twice.
func TestInOrder(t *testing.T) {
	n := newNetwork(t, newRand(t), 1024)
	n.delay = func() time.Duration { return 50 * time.Microsecond }
	sizes, _ := n.post(200)
	n.run()
	packets := uint64(0)
	for _, s := range sizes {
		packets += (s + 255) / 256
	}
	if s := n.s.Stats(); s != (SenderStats{Sent: packets}) {
		t.Errorf("%+v, want %d packets", s, packets)
	}
	if s := n.r.Stats(); s != (ReceiverStats{Packets: packets}) {
		t.Errorf("%+v, want %d packets", s, packets)
	}
}

// TestSwapped follows Go-Back-N through one exchange of neighbours: one NAK, and
// all from the late packet on again.
func TestSwapped(t *testing.T) {
	s := NewSender(Config{MTU: 256, Window: 100, Timeout: time.Second})
	s.Post(0, 6*256)
	var p [6]Packet
	for i := range p {
		p[i] = s.Send(0)
	}
	for i, want := range []Opcode{WriteFirst, WriteMiddle, WriteMiddle, WriteMiddle, WriteMiddle, WriteLast} {
		if p[i].Opcode != want || p[i].PSN != PSN(i) {
			t.Errorf("packet %d has opcode %#x and PSN %d", i, p[i].Opcode, p[i].PSN)
		}
	}
	var r Receiver
	var answers []Packet
	for _, i := range []int{0, 2, 1, 3, 4, 5} {
		if a := r.Arrive(&p[i]); a.Answer {
			answers = append(answers, a.Reply)
		}
	}
	// 2 comes before 1 and is dropped, and so are, after 1, those behind it.
	if len(answers) != 2 || !answers[0].Nak || answers[0].PSN != 1 || !answers[1].Nak || answers[1].PSN != 2 {
		t.Fatalf("answers %+v, want NAKs for 1 and 2", answers)
	}
	if st := r.Stats(); st.Reordered != 1 || st.DistanceSum != 1 || st.OutOfSequence != 4 || st.Naks != 2 || st.Duplicates != 0 {
		t.Errorf("%+v", st)
	}
	s.Acknowledged(1, &answers[0])
	if s.una != 1 || s.next != 1 {
		t.Errorf("after the first NAK una is %d and next %d", s.una, s.next)
	}
	s.Acknowledged(1, &answers[1])
	if s.una != 2 || s.next != 2 || s.Stats().Rewinds != 1 {
		t.Errorf("after the second NAK una is %d and next %d, %+v", s.una, s.next, s.Stats())
	}
	for s.Ready() {
		q := s.Send(2)
		if a := r.Arrive(&q); a.Complete {
			if n := s.Acknowledged(3, &a.Reply); n != 1 || s.Backlog() != 0 {
				t.Errorf("%d messages completed, backlog %d", n, s.Backlog())
			}
		}
	}
	if st := r.Stats(); st.Reordered != 1 || st.Duplicates != 0 {
		t.Errorf("repetitions count as reordered: %+v", st)
	}
	if st := s.Stats(); st.Sent != 10 || st.Retransmitted != 4 {
		t.Errorf("%+v, want 10 packets, 4 of them again", st)
	}
}

// Answers that cannot be are ignored, and silence ends after the time-out.
func TestSenderIgnoresNonsense(t *testing.T) {
	s := NewSender(Config{MTU: 256, Window: 4, Timeout: time.Millisecond})
	if _, ok := s.Deadline(); ok || s.Ready() {
		t.Error("a sender without messages awaits something")
	}
	s.Post(0, 10*256)
	for s.Ready() {
		s.Send(0)
	}
	if s.next != 4 {
		t.Fatalf("%d packets were sent into a window of 4", s.next)
	}
	for _, p := range []Packet{
		{Opcode: Acknowledge, PSN: 4},            // not sent yet
		{Opcode: Acknowledge, PSN: 5, Nak: true}, // likewise
		{Opcode: Acknowledge, PSN: psnMask},      // long ago
		{Opcode: Acknowledge, PSN: 1 << 22},      // anything
	} {
		if s.Acknowledged(0, &p); s.una != 0 || s.next != 4 {
			t.Errorf("%+v was believed: una %d, next %d", p, s.una, s.next)
		}
	}
	s.Expire(mono.Time(time.Millisecond) - 1)
	if s.next != 4 {
		t.Error("went back too soon")
	}
	s.Expire(mono.Time(time.Millisecond))
	if s.next != 0 || s.Stats().Timeouts != 1 {
		t.Errorf("after the time-out next is %d, %+v", s.next, s.Stats())
	}
	// An answer to what was sent before the time-out counts.
	s.Acknowledged(mono.Time(time.Millisecond), &Packet{Opcode: Acknowledge, PSN: 2})
	if s.una != 3 || s.next != 3 {
		t.Errorf("una %d, next %d, want 3", s.una, s.next)
	}
}

func TestPSN(t *testing.T) {
	for _, tc := range []struct {
		p, q PSN
		want int32
	}{
		{0, 0, 0}, {1, 0, 1}, {0, 1, -1}, {0, psnMask, 1}, {psnMask, 0, -1}, {5, psnMask - 4, 10}, {1 << 22, 0, 1 << 22}, {0, 1<<23 - 1, -(1<<23 - 1)},
	} {
		if got := tc.p.Sub(tc.q); got != tc.want {
			t.Errorf("%d - %d = %d, want %d", tc.p, tc.q, got, tc.want)
		}
	}
}

// TestPacketBytes holds the headers against bytes written down by hand.
func TestPacketBytes(t *testing.T) {
	ack := Packet{Opcode: Acknowledge, QP: 0x123456, PSN: 0xabcdef, Nak: true}
	if got, want := string(ack.Append(nil)), "\x11\x00\xff\xff\x00\x12\x34\x56\x00\xab\xcd\xef\x60\x00\x00\x00\x00\x00\x00\x00"; got != want {
		t.Errorf("NAK % x, want % x", got, want)
	}
	only := Packet{Opcode: WriteOnly, QP: 1, AckReq: true, PSN: 2, Sequence: 3, Posted: 4, Size: 5, Workload: 6, Data: MinData}
	want := "\x0a\x00\xff\xff\x00\x00\x00\x01\x80\x00\x00\x02" + "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x05" +
		"\x00\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x06" + "\x00\x00\x00\x00"
	if got := string(only.Append(nil)); got != want {
		t.Errorf("request % x, want % x", got, want)
	}
}

// FuzzParse: no bytes make the parser or a receiver panic, and what is read is
// what would be written, but for bits that are not looked at.
func FuzzParse(f *testing.F) {
	for _, p := range []Packet{
		{Opcode: Acknowledge, QP: 7, PSN: 9}, {Opcode: Acknowledge, Nak: true},
		{Opcode: WriteOnly, QP: 7, PSN: 1, Size: 100, Data: 100}, {Opcode: WriteFirst, Size: 5000, Data: 1024},
		{Opcode: WriteMiddle, AckReq: true, Data: MaxData}, {Opcode: WriteLast, Data: MinData},
	} {
		f.Add(p.Append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var p, q Packet
		if p.Parse(b) != nil {
			return
		}
		if err := q.Parse(p.Append(nil)); err != nil || p != q {
			t.Fatalf("%+v became %+v, %v", p, q, err)
		}
		var r Receiver
		r.Arrive(&p)
		s := NewSender(Config{MTU: 256, Window: 8, Timeout: 1})
		s.Post(0, 4000)
		for s.Ready() {
			s.Send(0)
		}
		s.Acknowledged(0, &p)
		if s.una > s.next || s.next > s.top || s.top > s.end {
			t.Fatalf("una %d, next %d, top %d, end %d after %+v", s.una, s.next, s.top, s.end, p)
		}
	})
}
