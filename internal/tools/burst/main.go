// Command burst draws docs/img/ordered-spray.svg: a burst that crosses four paths and
// leaves in order. What it draws is what scheme reed and its receiver do. Run it at the
// top of the repository: go run ./internal/tools/burst
package main

import (
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

const (
	paths   = 4
	packets = 12
	length  = 1500
	rate    = 10e9 // of each uplink; the host has that of all together
	flight  = mono.Time(2 * time.Microsecond)
)

// queues are what stands in the uplinks' queues when the burst comes, bytes, and hidden
// what waits further on, which the source leaf does not know.
var (
	queues = [paths]uint32{0, 6000, 1500, 3000}
	hidden = [paths]mono.Time{5200, 0, 0, 1500}
)

// packet is one of the burst's. It waits in its uplink's queue from came to starts, is
// under way until arrives, and goes on to its host at leaves.
type packet struct {
	path                          int
	came, starts, arrives, leaves mono.Time
}

func main() {
	log.SetFlags(0)
	burst, err := send()
	if err != nil {
		log.Fatalf("burst: %v", err)
	}
	name := filepath.Join("docs", "img", "ordered-spray.svg")
	if err := os.WriteFile(name, draw(burst), 0o644); err != nil {
		log.Fatalf("burst: %v", err)
	}
}

// send has a leaf send the burst, and another one put it in order.
func send() ([]packet, error) {
	section := balance.Find("reed").Section.New(balance.Datacenter).(*balance.ReedParams)
	section.Source.Samples = 0
	source, err := balance.New("reed", balance.Options{Seed: 1, Section: section, Leaves: 1})
	if err != nil {
		return nil, err
	}
	var queue, byteTime [balance.MaxPaths]uint32
	copy(queue[:], queues[:])
	for u := range byteTime {
		byteTime[u] = balance.ByteTime(rate)
	}
	view := &balance.View{Paths: []balance.Paths{balance.MakePaths(0, 1, 2, 3)}, Queue: &queue, Local: new([balance.MaxPaths]uint8), ByteTime: &byteTime}
	one := mono.Time(length * 8 * time.Second / rate)
	burst, marks := make([]packet, packets), make([]overlay.Fabric, packets)
	var free [paths]mono.Time // when each uplink has sent what it has
	for u := range free {
		free[u] = mono.Time(queues[u]) * one / length
	}
	for i := range burst {
		now := mono.Time(i) * one / paths
		for u := range free {
			queue[u] = uint32(max(free[u]-now, 0) * length / one)
		}
		pkts := []balance.Packet{{Hash: 1, Len: length}}
		source.Choose(now, view, pkts)
		u := int(pkts[0].Path)
		p := packet{path: u, came: now, starts: max(now, free[u])}
		free[u] = p.starts + one
		p.arrives = free[u] + flight + hidden[u]
		burst[i] = p
		pkts[0].Stamp(now, balance.Find("reed").Wire, uint8(u), &marks[i])
	}
	return burst, receive(section, burst, marks)
}

// receive fills in when the packets leave.
func receive(section *balance.ReedParams, burst []packet, marks []overlay.Fabric) error {
	o := balance.Options{Section: section, Leaves: 1, Ports: 1}
	if err := balance.Find("reed").Complete(&o); err != nil {
		return err
	}
	r, err := balance.Find("reed").Receiver(&o)
	if err != nil {
		return err
	}
	place := map[uint16]int{} // which packet waits where
	for range burst {
		next := -1
		for i := range burst {
			if burst[i].leaves == 0 && !waits(place, i) && (next < 0 || burst[i].arrives < burst[next].arrives) {
				next = i
			}
		}
		now := burst[next].arrives
		pkts := []reorder.Arrival{{Hash: 1, Len: length, Fabric: marks[next]}}
		r.Receive(now, pkts)
		if p := &pkts[0]; p.Verdict.Held() {
			place[p.Hold] = next
		} else {
			burst[next].leaves = now
			if p.Verdict.DrainAfter() {
				for _, q := range append([]uint16{p.Drain}, p.Also...) {
					burst[place[q]].leaves = now
					delete(place, q)
				}
			}
		}
	}
	return nil
}

func waits(place map[uint16]int, packet int) bool {
	for _, i := range place {
		if i == packet {
			return true
		}
	}
	return false
}
