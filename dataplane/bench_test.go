package dataplane

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/dataplane/xsk"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// benchLink gives the worker the same templates over and over, with the
// metadata that the XDP program would have written, and takes everything at
// once. Its cost is part of every figure: two writes a frame for the flow and
// the metadata, and what restore rewrites.
type benchLink struct {
	memLink
	sizes   []int // of the templates, in turn
	turn    int
	flows   uint32 // a power of two: this loop must not divide
	next    uint32
	budget  int // frames to hand out
	burst   int // and so many at once; 0: any number
	vary    func(b []byte, flow uint32)
	restore func(b []byte)
	meta    overlay.Meta
}

func (l *benchLink) Receive(d []xsk.Desc) int {
	n := min(len(d), l.budget, len(l.filled))
	if l.burst != 0 {
		n = min(n, l.burst)
	}
	l.budget -= n
	for i := range n {
		a := l.filled[len(l.filled)-1] + xsk.Headroom
		l.filled = l.filled[:len(l.filled)-1]
		size := l.sizes[l.turn]
		if l.turn++; l.turn == len(l.sizes) {
			l.turn = 0
		}
		b := l.area[a : a+uint64(size)]
		flow := l.next & (l.flows - 1)
		l.next++
		l.vary(b, flow)
		if l.restore != nil {
			l.restore(b)
		}
		m := (*overlay.Meta)(unsafe.Pointer(&l.area[a-overlay.MetaLen]))
		*m = l.meta
		m.Hash = flow * 0x9E3779B1
		d[i] = xsk.Desc{Addr: a, Len: uint32(size)}
	}
	return n
}

func (l *benchLink) Transmit(d []xsk.Desc) int {
	for i := range d {
		l.done = append(l.done, d[i].Addr)
	}
	l.sent += len(d)
	return len(d)
}

func (l *benchLink) Complete(a []uint64) int {
	n := min(len(a), len(l.done))
	copy(a, l.done[len(l.done)-n:])
	l.done = l.done[:len(l.done)-n]
	return n
}

// benchLinks puts links for a benchmark in the place of a worker's, by PortID. Every UMEM
// frame holds the same template, so that none need be copied between rounds.
func benchLinks(b *testing.B, r *rig, make func(size int) []byte, sizes []int, flows int, meta overlay.Meta,
	vary func([]byte, uint32), restore func([]byte)) (links []*benchLink) {
	for i := range r.w.ports {
		l := &benchLink{memLink: memLink{t: b, area: r.w.area, size: r.w.cfg.RingSize}, flows: uint32(flows), sizes: sizes, vary: vary, restore: restore, meta: meta, burst: r.burst}
		links = append(links, l)
		r.w.reclaim(&r.w.ports[i])
		r.w.ports[i].link = nil
	}
	largest := 0
	for _, s := range sizes {
		largest = max(largest, s)
	}
	template := make(largest)
	for off := 0; off < len(r.w.area); off += testFrameSize {
		copy(r.w.area[off+xsk.Headroom:], template)
	}
	for i := range r.w.ports {
		r.w.attach(&r.w.ports[i], links[i])
	}
	return links
}

// bench runs frames of the given sizes in by one port.
func bench(b *testing.B, r *rig, in PortID, make func(size int) []byte, sizes []int, flows int, meta overlay.Meta,
	vary func([]byte, uint32), restore func([]byte)) {
	links := benchLinks(b, r, make, sizes, flows, meta, vary, restore)
	sent := func() (n int) {
		for _, l := range links {
			n += l.sent
		}
		return n
	}
	start, made := sent(), r.w.snapshot().Made
	b.ReportAllocs()
	b.ResetTimer()
	r.take(links[in], b.N)
	b.StopTimer()
	if got, messages := sent()-start, int(r.w.snapshot().Made-made); got != b.N+messages || messages > b.N/10 {
		b.Fatalf("sent %d frames, %d of them made here, of %d; dropped %v", got, messages, b.N, r.drops())
	}
}

// take has the worker take n frames in by a link, and send them.
func (r *rig) take(from *benchLink, n int) {
	for from.budget = n; from.budget > 0; r.now += 5000 {
		if r.capable {
			r.w.shared.leaf.Capable.Confirm(0, r.now)
		}
		r.w.round(r.now)
	}
	r.w.round(r.now)
}

var benchSizes = []struct {
	name  string
	sizes []int
}{{"64B", []int{64}}, {"1500B", []int{1514}}, {"mixed", []int{64, 64, 64, 594, 594, 1514}}} // simple IMIX 7:4:1, shortened

func benchEach(b *testing.B, run func(b *testing.B, sizes []int, flows int)) {
	for _, s := range benchSizes {
		for _, flows := range []int{1, 1 << 16} {
			b.Run(fmt.Sprintf("%s/flows=%d", s.name, flows), func(b *testing.B) { run(b, s.sizes, flows) })
		}
	}
}

// BenchmarkLeafHostToFabric is the whole way from an access port's RX ring to
// an uplink's TX ring: look up, decide, encapsulate, queue, account.
func BenchmarkLeafHostToFabric(b *testing.B) {
	benchEach(b, func(b *testing.B, sizes []int, flows int) {
		r := newRig(b, leafConfig(), leafTables())
		r.send(up0, wrap(vtep2, own(), 100, udp4(bcast, hostB, 0, 1, 10), nil))
		meta := overlay.Meta{Magic: overlay.MetaMagic, Flags: overlay.FlagIPv4 | overlay.FlagPorts, L3: 14, L4: 34}
		bench(b, r, acc0, func(size int) []byte { return udp4(hostB, hostA, 0, 1, size-42) }, sizes, flows, meta,
			func(f []byte, flow uint32) { binary.BigEndian.PutUint16(f[34:], uint16(flow)) }, nil)
	})
}

// BenchmarkLeafWorkers is BenchmarkLeafHostToFabric's work by one worker of a leaf, and by
// two of one leaf at a time, each on a thread of its own: the time is by frames of all. On a
// machine with other work, which leaves two threads less than two processors, cpu-ns/op says
// whether the workers slow each other down: they do not if it is the same for one and two.
func BenchmarkLeafWorkers(b *testing.B) {
	for _, scheme := range []string{"ecmp", "conga"} {
		for _, workers := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s/workers=%d", scheme, workers), func(b *testing.B) { benchWorkers(b, scheme, workers) })
		}
	}
}

func benchWorkers(b *testing.B, scheme string, workers int) {
	cfg := leafConfig()
	cfg.Scheme = scheme
	meta := overlay.Meta{Magic: overlay.MetaMagic, Flags: overlay.FlagIPv4 | overlay.FlagPorts, L3: 14, L4: 34}
	make := func(size int) []byte { return udp4(hostB, hostA, 0, 1, size-42) }
	vary := func(f []byte, flow uint32) { binary.BigEndian.PutUint16(f[34:], uint16(flow)) }
	rigs, links := newRigs(b, cfg, leafTables(), workers), [][]*benchLink{}
	for _, r := range rigs {
		r.send(up0, wrap(vtep2, own(), 100, udp4(bcast, hostB, 0, 1, 10), nil))
		links = append(links, benchLinks(b, r, make, []int{64}, 1<<10, meta, vary, nil))
	}
	var all sync.WaitGroup
	b.ResetTimer()
	cpu := userTime(b)
	for i, r := range rigs {
		all.Go(func() {
			runtime.LockOSThread()
			r.take(links[i][acc0], b.N/workers)
		})
	}
	all.Wait()
	b.StopTimer()
	b.ReportMetric(float64(userTime(b)-cpu)/float64(b.N), "cpu-ns/op")
	for i := range rigs {
		if sent := links[i][up0].sent + links[i][up1].sent; sent != b.N/workers {
			b.Fatalf("worker %d has sent %d of %d frames; dropped %v", i, sent, b.N/workers, rigs[i].drops())
		}
	}
}

// userTime returns the processor time that the process has had outside of the kernel.
func userTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano())
}

// BenchmarkLeafSchemes is BenchmarkLeafHostToFabric's work under each scheme,
// towards a peer that knows the fabric's fields, so that every header carries
// them and feedback is looked for. Of 1024 flows each has a packet every 80 µs,
// and its flowlet goes on; of 64 K flows every packet starts a new one.
func BenchmarkLeafSchemes(b *testing.B) {
	for _, scheme := range balance.Names() {
		for _, flows := range []int{1 << 10, 1 << 16} {
			b.Run(fmt.Sprintf("%s/flows=%d", scheme, flows), func(b *testing.B) { benchScheme(b, scheme, flows) })
		}
	}
}

func benchScheme(b *testing.B, scheme string, flows int) {
	cfg := leafConfig()
	cfg.Scheme = scheme
	for i := range cfg.Ports {
		cfg.Ports[i].Egress.LinkRate = 40e9
	}
	r := newRig(b, cfg, leafTables())
	r.send(up0, wrap(vtep2, own(), 100, udp4(bcast, hostB, 0, 1, 10), &overlay.Fabric{Capable: true, CE: 1}))
	r.capable = true
	meta := overlay.Meta{Magic: overlay.MetaMagic, Flags: overlay.FlagIPv4 | overlay.FlagPorts, L3: 14, L4: 34}
	template := udp4(hostB, hostA, 0, 1, 64-42)
	bench(b, r, acc0, func(size int) []byte { return udp4(hostB, hostA, 0, 1, size-42) }, []int{64}, flows, meta, func(f []byte, flow uint32) {
		if overlay.MAC(f[:6]) != hostB { // a message of the scheme's was written here
			copy(f, template)
		}
		binary.BigEndian.PutUint16(f[34:], uint16(flow))
	}, nil)
}

// BenchmarkLeafFabricToHost is the way back: check, decapsulate, learn, look
// up, queue, account.
func BenchmarkLeafFabricToHost(b *testing.B) {
	benchEach(b, func(b *testing.B, sizes []int, flows int) {
		r := newRig(b, leafConfig(), leafTables())
		r.send(acc0, udp4(bcast, hostA, 0, 1, 10))
		meta := overlay.Meta{Magic: overlay.MetaMagic, Flags: overlay.FlagIPv4 | overlay.FlagPorts, L3: 14, L4: 34, Inner: overlay.Overhead}
		outer := make([]int, len(sizes))
		for i, s := range sizes {
			outer[i] = s + overlay.Overhead
		}
		make := func(size int) []byte {
			return wrap(vtep2, own(), 100, udp4(hostA, hostB, 0, 1, size-overlay.Overhead-42), nil)
		}
		bench(b, r, up0, make, outer, flows, meta, fixLengths, nil)
	})
}

// BenchmarkLeafPutsInOrder is BenchmarkLeafFabricToHost's work for packets of
// leaves that use ConWeave: plain beside marked, none of them held.
func BenchmarkLeafPutsInOrder(b *testing.B) {
	for _, marked := range []bool{false, true} {
		for _, flows := range []int{1 << 10, 1 << 16} {
			name := "plain"
			if marked {
				name = "marked"
			}
			b.Run(fmt.Sprintf("%s/flows=%d", name, flows), func(b *testing.B) { benchOrder(b, marked, flows) })
		}
	}
}

func benchOrder(b *testing.B, marked bool, flows int) {
	r := newRig(b, leafConfig(), leafTables())
	r.send(acc0, udp4(bcast, hostA, 0, 1, 10))
	fields, overhead := &overlay.Fabric{Capable: true}, overlay.Overhead
	if marked {
		fields.Scheme, fields.Shim, overhead = reorder.SchemeID, true, overlay.MaxOverhead
	}
	meta := overlay.Meta{Magic: overlay.MetaMagic, Flags: overlay.FlagIPv4 | overlay.FlagPorts, L3: 14, L4: 34, Inner: uint8(overhead)}
	make := func(size int) []byte {
		return wrap(vtep2, own(), 100, udp4(hostA, hostB, 0, 1, size-overhead-42), fields)
	}
	bench(b, r, up0, make, []int{64 + overhead}, flows, meta, fixLengths, nil)
}

// BenchmarkLinks is what the links of these benchmarks cost themselves, towards the fabric
// and, where they restore an outer header, at a spine: frames are received and sent, and
// nothing is done with them.
func BenchmarkLinks(b *testing.B) {
	for _, restore := range []bool{false, true} {
		b.Run(fmt.Sprintf("outer=%v", restore), func(b *testing.B) {
			r, in := newRig(b, leafConfig(), leafTables()), acc0
			vary := func(f []byte, flow uint32) { binary.BigEndian.PutUint16(f[34:], uint16(flow)) }
			if restore {
				vary = fixLengths
			}
			make := func(size int) []byte { return wrap(vtep2, vtep3, 100, udp4(hostA, hostB, 0, 1, 22), nil) }
			l := benchLinks(b, r, make, []int{64 + overlay.Overhead}, 1<<16, overlay.Meta{}, vary, nil)[in]
			b.ResetTimer()
			for l.budget = b.N; l.budget > 0; {
				n := l.Receive(r.w.descs[:burstSize])
				l.Transmit(r.w.descs[:n])
				n = l.Complete(r.w.addrs[:])
				for i := range r.w.addrs[:n] {
					r.w.addrs[i] &^= r.w.frameMask
				}
				l.Fill(r.w.addrs[:n])
			}
		})
	}
}

// BenchmarkSpine is a spine's: check the outer header, look the route up,
// choose, rewrite, queue, account.
func BenchmarkSpine(b *testing.B) {
	benchEach(b, func(b *testing.B, sizes []int, flows int) {
		r := newRig(b, spineConfig(), spineTables())
		meta := overlay.Meta{Magic: overlay.MetaMagic, Flags: overlay.FlagIPv4 | overlay.FlagPorts, L3: 14, L4: 34}
		outer := make([]int, len(sizes))
		for i, s := range sizes {
			outer[i] = s + overlay.Overhead
		}
		make := func(size int) []byte {
			return wrap(vtep2, vtep3, 100, udp4(hostA, hostB, 0, 1, size-overlay.Overhead-42), nil)
		}
		bench(b, r, dn0, make, outer, flows, meta, fixLengths, nil)
	})
}

// fixLengths makes the outer header of a template whole again: its lengths for
// this frame's size, the flow's source port, TTL and checksum.
func fixLengths(f []byte, flow uint32) {
	copy(f, ownMAC[:]) // a spine has written over it, when the memory was last used
	binary.BigEndian.PutUint16(f[34:], 0xc000|uint16(flow)>>2)
	ip := overlay.IPv4(f[14:])
	total := uint16(len(f) - 14)
	const base = 0x4500 + 0x4000 + 0x4011 + 0x0a00 + 2 // version, DF, TTL 64 and UDP, source
	dst := uint32(binary.BigEndian.Uint16(ip[16:])) + uint32(binary.BigEndian.Uint16(ip[18:]))
	sum := uint32(base) + uint32(total) + dst
	sum = sum>>16 + sum&0xffff
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(ip[2:], total)
	ip[8] = 64
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum))
	binary.BigEndian.PutUint16(f[38:], total-20)
}
