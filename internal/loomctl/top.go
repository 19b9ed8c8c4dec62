package loomctl

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/loomfabric/loom/internal/admin"
)

// Top is how busy a node is: rates between two looks at its counters.
type Top struct {
	Name    string        `json:"name"`
	Over    time.Duration `json:"over_ns"` // between the looks
	Workers []TopWorker   `json:"workers"`
	Ports   []TopPort     `json:"ports"`
}

// TopWorker is one worker.
type TopWorker struct {
	Worker   int     `json:"worker"`
	Busy     float64 `json:"busy"`         // share of the time
	Frames   float64 `json:"frames"`       // received, a second
	PerBurst float64 `json:"burst_frames"` // in a burst with a frame or more
	PerFrame float64 `json:"frame_ns"`     // busy time a frame, all that is done for it
	Rounds   float64 `json:"rounds"`       // a second
	Sleeps   float64 `json:"sleeps"`       // a second
	Dropped  float64 `json:"dropped"`      // a second
	Fast     bool    `json:"fast"`         // not a worker: what XDP has forwarded by itself
}

// TopPort is one port, all workers together. Rates are by the second.
type TopPort struct {
	Port       string  `json:"port"`
	RxFrames   float64 `json:"rx_frames"`
	RxBits     float64 `json:"rx_bits"`
	TxFrames   float64 `json:"tx_frames"`
	TxBits     float64 `json:"tx_bits"`
	Dropped    float64 `json:"dropped"`     // of those that came in here
	Rate       uint64  `json:"rate"`        // of the link, bits per second; 0: unknown
	Load       float64 `json:"utilisation"` // sent, as a share of the rate; 0 if that is unknown
	QueueBytes uint64  `json:"queue_bytes"` // at the second look
}

func topCommand(o *options) *cobra.Command {
	var over time.Duration
	c := &cobra.Command{
		Use: "top", Short: "How busy workers and ports are: shares and rates, over a second",
		Args: cobra.NoArgs,
	}
	c.Flags().DurationVar(&over, "over", time.Second, "time between the two looks; with --watch, only the first time")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if over < minWatch {
			return fmt.Errorf("--over=%v: use %v or more", over, minWatch)
		}
		t := &topper{over: over, last: make(map[string]*look)}
		v := &view[Top]{ask: t.ask, print: printTop}
		return v.show(c, o)
	}
	return c
}

// topper remembers the last look at each node. It may be used by several goroutines.
type topper struct {
	over time.Duration

	mu   sync.Mutex
	last map[string]*look
}

// look is a node's counters at a time.
type look struct {
	at    time.Time
	stats admin.Stats
	ports admin.Ports
}

func takeLook(ctx context.Context, n *node) (*look, error) {
	stats, err := get[admin.Stats](ctx, n, "stats", nil)
	if err != nil {
		return nil, err
	}
	ports, err := get[admin.Ports](ctx, n, "ports", nil)
	if err != nil {
		return nil, err
	}
	return &look{time.Now(), *stats, *ports}, nil
}

// ask looks twice, or once again.
func (t *topper) ask(ctx context.Context, n *node) (json.RawMessage, error) {
	t.mu.Lock()
	before := t.last[n.name]
	t.mu.Unlock()
	if before == nil {
		var err error
		if before, err = takeLook(ctx, n); err != nil {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(t.over):
		}
	}
	now, err := takeLook(ctx, n)
	t.mu.Lock()
	t.last[n.name] = now // nil: begin again
	t.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return json.Marshal(between(before, now))
}

// between returns the rates between two looks. A counter that has fallen is another
// process's: it counts as 0.
func between(a, b *look) *Top {
	over := b.at.Sub(a.at)
	top := &Top{Name: b.stats.Name, Over: over, Workers: []TopWorker{}, Ports: []TopPort{}}
	for i := range b.stats.Workers {
		w := &b.stats.Workers[i]
		old := admin.Worker{}
		if i < len(a.stats.Workers) {
			old = a.stats.Workers[i]
		}
		span := time.Duration(w.At - old.At)
		if w.Fast || span <= 0 {
			span = over
		}
		frames, busy := grown(old.Received, w.Received), max(w.Busy-old.Busy, 0)
		x := TopWorker{
			Worker: w.Worker, Fast: w.Fast, Frames: perSecond(frames, span), Rounds: perSecond(grown(old.Rounds, w.Rounds), span),
			Sleeps: perSecond(grown(old.Sleeps, w.Sleeps), span), Dropped: perSecond(grown(old.Dropped, w.Dropped), span),
			Busy: min(busy.Seconds()/span.Seconds(), 1),
		}
		if n := grown(old.Bursts, w.Bursts); n > 0 {
			x.PerBurst = float64(frames) / float64(n)
		}
		if frames > 0 {
			x.PerFrame = float64(busy) / float64(frames)
		}
		top.Workers = append(top.Workers, x)
	}
	olds := make(map[string]*admin.Port)
	for i := range a.ports.Ports {
		olds[a.ports.Ports[i].Port] = &a.ports.Ports[i]
	}
	for i := range b.ports.Ports {
		p := &b.ports.Ports[i]
		old := olds[p.Port]
		if old == nil {
			old = p // it has just come
		}
		x := TopPort{
			Port: p.Port, RxFrames: perSecond(grown(old.RxFrames, p.RxFrames), over), RxBits: 8 * perSecond(grown(old.RxBytes, p.RxBytes), over),
			TxFrames: perSecond(grown(old.TxFrames, p.TxFrames), over), TxBits: 8 * perSecond(grown(old.TxBytes, p.TxBytes), over),
			Dropped: perSecond(grown(old.Dropped, p.Dropped), over), Rate: p.Rate, QueueBytes: p.QueueBytes,
		}
		if p.Rate > 0 { // the meter's load would be one of the last milliseconds, beside rates of the interval
			x.Load = x.TxBits / float64(p.Rate)
		}
		top.Ports = append(top.Ports, x)
	}
	return top
}

func grown(old, now uint64) uint64 {
	if now < old {
		return 0
	}
	return now - old
}

func perSecond(n uint64, over time.Duration) float64 {
	if over <= 0 {
		return 0
	}
	return float64(n) / over.Seconds()
}

func printTop(w io.Writer, a *Top) {
	t := newTable(w, "WORKER", "BUSY", "FRAMES/S", "FRAMES A BURST", "NS A FRAME", "ROUNDS/S", "SLEEPS/S", "DROPPED/S")
	for i := range a.Workers {
		x := &a.Workers[i]
		if x.Fast {
			t.row("xdp", none, quantity(x.Frames), none, none, none, none, quantity(x.Dropped))
			continue
		}
		t.row(x.Worker, percent(x.Busy), quantity(x.Frames), either(x.PerBurst > 0, fmt.Sprintf("%.1f", x.PerBurst), none),
			either(x.PerFrame > 0, fmt.Sprintf("%.0f", x.PerFrame), none), quantity(x.Rounds), quantity(x.Sleeps), quantity(x.Dropped))
	}
	t.endWithGap()
	t = newTable(w, "PORT", "LOAD", "RX FRAMES/S", "RX BIT/S", "TX FRAMES/S", "TX BIT/S", "QUEUED", "DROPPED/S")
	for i := range a.Ports {
		p := &a.Ports[i]
		t.row(p.Port, either(p.Rate > 0, percent(p.Load), none), quantity(p.RxFrames), quantity(p.RxBits), quantity(p.TxFrames), quantity(p.TxBits), p.QueueBytes, quantity(p.Dropped))
	}
	t.end()
}

// quantity writes a number to three or four digits, with k, M or G behind a large one.
func quantity(x float64) string {
	for _, unit := range []string{"", "k", "M"} {
		if x < 9999.5 {
			if unit == "" {
				return strconv.FormatFloat(x, 'f', 0, 64)
			}
			return strconv.FormatFloat(x, 'f', 1, 64) + unit
		}
		x /= 1000
	}
	return strconv.FormatFloat(x, 'f', 1, 64) + "G"
}
