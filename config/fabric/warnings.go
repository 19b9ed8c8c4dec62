package fabric

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/loomfabric/loom/config/vocab"
)

// Warnings says what is valid in the file and unwise under a scheme ("": the
// file's own), with the classes as they are: a flowlet gap shorter than the
// longest time that a link's full queue takes, on the leaf's or on the spine's
// end. A flow that moves may then overtake its own packets (CONGA §3.4), and
// flows herd from one uplink to the next. Or a shorter pause after which a scheme
// takes nothing of a flow to be under way (ConWeave §4.1).
func (f *File) Warnings(scheme string) (warnings []string) {
	if scheme == "" {
		scheme = f.Scheme
	}
	schemes := []string{scheme}
	for i := range f.Classes {
		schemes = append(schemes, f.Classes[i].Scheme)
	}
	at, link, drain := f.longestQueue()
	for _, p := range vocab.Pauses(schemes, f.Congestion.CONGA(), f.Congestion.Auto(), f.Sections.ByName()) {
		if p.Value >= drain {
			continue
		}
		fix := "shorten the queue"
		if p.Flowlet {
			fix = "set it above that (and tau near it), or " + fix
		} else if drain <= p.Longest {
			fix = fmt.Sprintf("set it to %v or more, or %s", drain, fix)
		}
		warnings = append(warnings, fmt.Sprintf("%s is %v for scheme %s, but %s can queue %v at %v for %v: %s",
			p.Key, p.Value, strings.Join(p.Schemes, " and "), at, link.Queue, link.Rate, drain, fix))
	}
	return warnings
}

// longestQueue finds the end of a link whose full queue takes longest.
func (f *File) longestQueue() (at string, link vocab.Link, drain time.Duration) {
	for _, l := range f.Expand().Links {
		for _, e := range []struct {
			direction string
			vocab.Link
		}{{"up", l.Up}, {"down", l.Down}} {
			if e.Rate == 0 {
				continue
			}
			if d := time.Duration(math.Ceil(float64(e.Queue)*8/float64(e.Rate)*1e6)) * time.Microsecond; d > drain {
				at, link, drain = l.Name+" "+e.direction, e.Link, d
			}
		}
	}
	return at, link, drain
}
