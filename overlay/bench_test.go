package overlay

import (
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/mono"
)

// Results go here, so that the compiler cannot do away with what is measured.
var (
	sinkDest   Dest
	sinkReason drop.Reason
)

func BenchmarkDissect(b *testing.B) {
	for _, c := range []struct {
		name  string
		frame []byte
	}{
		{"IPv4-TCP", tcp4Frame(1, 2, 1000, 80, 64)},
		{"IPv6-UDP", udp6Frame(1, 2, 1000, 80, 64)},
		{"VLAN-IPv4-TCP", tagged(tcp4Frame(1, 2, 1000, 80, 64), EtherTypeVLAN, 100)},
		{"RoCEv2", roceFrame(1, 2, 7)},
		{"ARP", arpFrame()},
	} {
		b.Run(c.name, func(b *testing.B) {
			var m Meta
			b.ReportAllocs()
			for b.Loop() {
				Dissect(c.frame, 1, &m)
			}
		})
	}
}

func BenchmarkEncap(b *testing.B) {
	four, six := MakeTunnel(vtepA, vtepB, macA, macB, DefaultPort), MakeTunnel(vtepC, vtepD, macA, macB, DefaultPort)
	for _, c := range []struct {
		name string
		tun  *Tunnel
		f    *Fabric
	}{
		{"plain", &four, nil},
		{"fabric", &four, &Fabric{Capable: true, LBTag: 3, CE: 1}},
		{"shim", &four, &Fabric{Capable: true, LBTag: 3, CE: 1, Shim: true, TxTstamp: 99}},
		{"fabric-IPv6", &six, &Fabric{Capable: true, LBTag: 3, CE: 1}},
	} {
		b.Run(c.name, func(b *testing.B) {
			buf := make([]byte, MaxOverhead6+1500)
			hash := uint32(0)
			b.ReportAllocs()
			for b.Loop() {
				hash += 0x9e3779b9
				c.tun.Encap(buf, 1500, 100, hash, 2, c.f)
			}
		})
	}
}

func BenchmarkDecap(b *testing.B) {
	for _, c := range []struct {
		name string
		in   func([]byte, VNI, uint32, uint8, *Fabric) []byte
		f    *Fabric
	}{
		{"plain", encapped, nil},
		{"fabric", encapped, &Fabric{Capable: true, LBTag: 3, CE: 1}},
		{"shim", encapped, &Fabric{Capable: true, LBTag: 3, CE: 1, Shim: true, TxTstamp: 99}},
		{"fabric-IPv6", encapped6, &Fabric{Capable: true, LBTag: 3, CE: 1}},
	} {
		b.Run(c.name, func(b *testing.B) {
			frame := c.in(tcp4Frame(1, 2, 1000, 80, 1000), 100, 7, 0, c.f)
			var d Decapped
			b.ReportAllocs()
			for b.Loop() {
				sinkReason = Decap(frame, DefaultPort, &d)
			}
			if sinkReason != drop.None {
				b.Fatal(sinkReason)
			}
		})
	}
}

// fdbBench is a table of 64 Ki addresses in 16 VNIs. Benchmarks walk `hot` of
// them: a few stay in the nearest cache, all of them do not.
func fdbBench() (*FDB, []MAC, mono.Time) {
	const n = 1 << 16
	f := NewFDB(n, 300*time.Second, 16, 4)
	now := mono.Time(time.Hour)
	macs := make([]MAC, n)
	for i := range macs {
		macs[i] = MACFromUint64(0x02_00_00_00_00_00 | uint64(i))
		f.Learn(uint16(i&15), macs[i], DestRemote(uint16(i)), now)
	}
	return f, macs, now
}

func BenchmarkFDBLookup(b *testing.B) {
	f, macs, now := fdbBench()
	for _, c := range []struct {
		name string
		hot  int
	}{{"hot", 128}, {"64Ki", 1 << 16}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				i = (i + 1) & (c.hot - 1)
				sinkDest = f.Lookup(uint16(i&15), macs[i], now)
			}
			if sinkDest == DestNone {
				b.Fatal("benchmark looks up unknown addresses")
			}
		})
	}
	b.Run("unknown", func(b *testing.B) {
		b.ReportAllocs()
		i := uint64(0)
		for b.Loop() {
			i = (i + 1) & 127
			sinkDest = f.Lookup(3, MACFromUint64(0x06<<40|i), now)
		}
	})
}

func BenchmarkFDBLearn(b *testing.B) {
	f, macs, now := fdbBench()
	b.Run("known", func(b *testing.B) {
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			i = (i + 1) & 127
			f.Learn(uint16(i&15), macs[i], DestRemote(uint16(i)), now)
		}
	})
	b.Run("moved", func(b *testing.B) {
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			i++
			f.Learn(uint16(i&15), macs[i&127], DestRemote(uint16(i>>7&1)), now)
		}
	})
	b.Run("new", func(b *testing.B) {
		f := NewFDB(1<<16, time.Second, 16, 4)
		b.ReportAllocs()
		now, i := mono.Time(0), uint64(0)
		for b.Loop() {
			if i++; i&(1<<15-1) == 0 { // two seconds on, what is there has aged
				now = now.Add(2 * time.Second)
			}
			f.Learn(0, MACFromUint64(0x02<<40|i), DestRemote(1), now)
			if i&7 == 0 {
				f.Sweep(now, 8)
			}
		}
	})
}

// BenchmarkFDBFlush takes 48 ports down, with 128 Ki addresses in the table of which the
// ports have 1024 each.
func BenchmarkFDBFlush(b *testing.B) {
	const ports, each = 48, 1024
	f := NewFDB(1<<17, 300*time.Second, 16, ports)
	now := mono.Time(time.Hour)
	for i := range 1<<17 - ports*each {
		f.Learn(uint16(i&15), MACFromUint64(0x02<<40|uint64(i)), DestRemote(uint16(i)), now)
	}
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		for i := range ports * each {
			f.Learn(uint16(i&15), MACFromUint64(0x06<<40|uint64(i)), DestLocal(uint16(i%ports), 0), now)
		}
		b.StartTimer()
		for p := range uint16(ports) {
			f.FlushPort(p, now)
		}
		b.StopTimer()
		f.Sweep(now, 1<<20)
		b.StartTimer()
	}
}
