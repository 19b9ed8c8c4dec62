package main

import (
	"bytes"
	"fmt"

	"github.com/loomfabric/loom/internal/mono"
)

// The measures of a step, in pixels.
const (
	width, stepHeight = 900, 146
	laneTop, lane     = 34, 26
	sourceX, leftX    = 150, 230 // end of the source's queues, begin of the paths
	rightX, heldX     = 560, 640 // end of the paths, begin of what waits
	box               = 18
)

// steps are the times that are drawn, ns.
var steps = []mono.Time{1_500, 4_500, 7_400, 9_000, 10_600}

var colours = [paths]string{"#4c72b0", "#dd8452", "#55a868", "#8172b3"}

// draw returns the steps one below the other.
func draw(burst []packet) []byte {
	var b bytes.Buffer
	height := stepHeight*len(steps) + 30
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	for _, h := range []struct {
		x    int
		text string
	}{{20, "source leaf: queues of the uplinks"}, {leftX + 90, "fabric: four paths"}, {heldX - 20, "destination leaf"}} {
		fmt.Fprintf(&b, `<text x="%d" y="18" fill="#555555">%s</text>`+"\n", h.x, h.text)
	}
	for i, now := range steps {
		fmt.Fprintf(&b, `<g transform="translate(0 %d)">`+"\n", 20+i*stepHeight)
		step(&b, burst, now)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// step draws what there is at a time.
func step(b *bytes.Buffer, burst []packet, now mono.Time) {
	fmt.Fprintf(b, `<line x1="0" x2="%d" y1="6" y2="6" stroke="#dddddd"/><text x="20" y="24" font-weight="bold">%.1f µs</text>`+"\n", width, float64(now)/1000)
	for u := range paths {
		y := laneTop + u*lane
		fmt.Fprintf(b, `<line x1="%d" x2="%d" y1="%d" y2="%d" stroke="%s" stroke-width="2" opacity="0.5"/>`+"\n", leftX, rightX, y+box/2, y+box/2, colours[u])
		fmt.Fprintf(b, `<rect x="20" y="%d" width="%d" height="%d" fill="none" stroke="#cccccc"/>`+"\n", y-2, sourceX-10, box+4)
	}
	var queued [paths]int
	held, out := 0, 0
	for u := range paths { // what was there before the burst
		for left := mono.Time(queues[u])*1200/length - now; left > 0; left -= 1200 {
			square(b, sourceX-10-queued[u]*(box+2), laneTop+u*lane, -1, "#bbbbbb")
			queued[u]++
		}
	}
	for n, p := range burst {
		y := laneTop + p.path*lane
		switch {
		case now < p.came:
		case now < p.starts:
			square(b, sourceX-10-queued[p.path]*(box+2), y, n, colours[p.path])
			queued[p.path]++
		case now < p.arrives:
			x := leftX + int(int64(rightX-leftX-box)*int64(now-p.starts)/int64(p.arrives-p.starts))
			square(b, x, y, n, colours[p.path])
		case now < p.leaves:
			square(b, heldX+held*(box+4), laneTop+8, n, colours[p.path])
			held++
		default:
			square(b, heldX+out*(box+2), laneTop+2*lane+22, n, colours[p.path])
			out++
		}
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" fill="#555555">waiting: %d</text>`+"\n", heldX, laneTop+4, held)
	fmt.Fprintf(b, `<text x="%d" y="%d" fill="#555555">in order to the host: %d</text>`+"\n", heldX, laneTop+2*lane+16, out)
}

// square draws a packet; n below 0: another flow's.
func square(b *bytes.Buffer, x, y, n int, colour string) {
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="%d" height="%d" rx="3" fill="%s"/>`, x, y, box, box, colour)
	if n >= 0 {
		fmt.Fprintf(b, `<text x="%d" y="%d" fill="#ffffff" font-size="11" text-anchor="middle">%d</text>`, x+box/2, y+13, n)
	}
	b.WriteString("\n")
}
