package dataplane

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/capture"
	"github.com/loomfabric/loom/overlay"
)

// BenchmarkCapture is BenchmarkLeafHostToFabric's work for frames of 64 bytes: nobody
// captures, somebody waits for drops, for a flow that there is not, for frames that a
// filter selects, and for the first 96 bytes of all. Nobody reads what is captured. Bursts
// are kept short of full ones, in which a worker that is behind would not look at frames.
func BenchmarkCapture(b *testing.B) {
	for _, c := range []struct {
		name string
		cfg  *CaptureConfig
	}{
		{"off", nil},
		{"drops", &CaptureConfig{Points: capture.Drop}},
		{"another-flow", &CaptureConfig{Flow: &Flow{SrcMAC: hostC, DstMAC: hostB}}},
		{"filter-none", &CaptureConfig{Filter: udpPort(0xffff)}},
		{"all", &CaptureConfig{SnapLen: 96}},
		{"all-read", &CaptureConfig{SnapLen: 96}},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := known(b, leafConfig())
			if c.cfg != nil {
				x, _ := r.captureOf(*c.cfg)
				defer x.Close()
				r.w.taps.full = [MaxPorts]uint8{}
				if c.name == "all-read" {
					stop := make(chan struct{})
					defer close(stop)
					go func() {
						for {
							select {
							case <-stop:
								return
							case <-time.After(time.Millisecond):
								x.Each(func(*capture.Frame) {})
							}
						}
					}()
				}
			}
			meta := overlay.Meta{Magic: overlay.MetaMagic, Flags: overlay.FlagIPv4 | overlay.FlagPorts, L3: 14, L4: 34}
			r.burst = burstSize - 1
			bench(b, r, acc0, func(size int) []byte { return udp4(hostB, hostA, 0, 1, size-42) }, []int{64}, 1<<10, meta,
				func(f []byte, flow uint32) { binary.BigEndian.PutUint16(f[34:], uint16(flow)) }, nil)
		})
	}
}
