// Package events keeps what a daemon has logged of late, for people who ask: the log's
// lines with their parts. It must not decide what is worth logging.
package events

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// Event is one line of the log. The names in the tags are those of the admin API.
type Event struct {
	Number uint64    `json:"number"` // counts from 1, and never twice
	Time   time.Time `json:"time"`
	Level  string    `json:"level"` // INFO, WARN or ERROR
	// Kind is what the event is about: path, peer, port, address, config, next_hop or node.
	Kind   string            `json:"kind"`
	Object string            `json:"object"` // which of them: "10.0.0.2 by up0"
	Text   string            `json:"text"`
	Attrs  map[string]string `json:"attrs"` // all that was logged with it
}

// maxText bounds what is kept of a text, in bytes.
const maxText = 1000

// Ring keeps the newest events. Any goroutine may use it.
type Ring struct {
	mu     sync.Mutex
	events []Event // of number n at n mod the size
	last   uint64
}

// NewRing returns a ring of a size.
func NewRing(size int) *Ring { return &Ring{events: make([]Event, size)} }

// Since returns the events after a number, oldest first: the newest limit of them. lost
// says how many of them are not kept any more; last is the number to ask with the next
// time. A number above the last is of a process that is gone: everything is new then.
func (r *Ring) Since(number uint64, limit int) (events []Event, last, lost uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if number > r.last {
		number = 0
	}
	first := number + 1
	keep := uint64(min(limit, len(r.events)))
	if r.last-number > keep {
		first = r.last - keep + 1
	}
	events = make([]Event, 0, r.last+1-first)
	for n := first; n <= r.last; n++ {
		events = append(events, r.events[n%uint64(len(r.events))])
	}
	return events, r.last, first - number - 1
}

// add gives an event its number and keeps it.
func (r *Ring) add(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	e.Number = r.last
	r.events[e.Number%uint64(len(r.events))] = e
}

// Handler has a log's lines of level INFO and above kept in a ring, whatever level the log
// itself shows.
type Handler struct {
	next  slog.Handler
	ring  *Ring
	attrs []slog.Attr
	group string // prefix of the names of attributes
}

// Keep returns a handler that keeps events in r and hands them to next.
func Keep(next slog.Handler, r *Ring) *Handler { return &Handler{next: next, ring: r} }

// Enabled reports whether somebody wants lines of a level.
func (h *Handler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || h.next.Enabled(ctx, level)
}

// Handle keeps a line and hands it on.
func (h *Handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo {
		h.ring.add(h.event(&r))
	}
	if !h.next.Enabled(ctx, r.Level) {
		return nil
	}
	return h.next.Handle(ctx, r)
}

// WithAttrs returns a handler whose lines have attributes.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *h
	c.next = h.next.WithAttrs(attrs)
	c.attrs = append(c.attrs[:len(c.attrs):len(c.attrs)], h.named(attrs)...)
	return &c
}

// WithGroup returns a handler whose lines' attributes have a prefix.
func (h *Handler) WithGroup(name string) slog.Handler {
	c := *h
	c.next, c.group = h.next.WithGroup(name), h.group+name+"."
	return &c
}

func (h *Handler) named(attrs []slog.Attr) []slog.Attr {
	out := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		out[i] = slog.Attr{Key: h.group + a.Key, Value: a.Value}
	}
	return out
}

func (h *Handler) event(r *slog.Record) Event {
	e := Event{Time: r.Time, Level: r.Level.String(), Text: cut(r.Message), Attrs: make(map[string]string)}
	for _, a := range h.attrs {
		e.Attrs[a.Key] = cut(a.Value.String())
	}
	r.Attrs(func(a slog.Attr) bool {
		e.Attrs[h.group+a.Key] = cut(a.Value.String())
		return true
	})
	e.Kind, e.Object = about(e.Attrs)
	return e
}

func cut(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxText)], "") }

// kinds say by which attributes an event is about what. The first that an event has
// decides.
var kinds = []struct{ attr, kind, by string }{
	{"peer", "peer", "uplink"},
	{"vtep", "peer", ""},
	{"mac", "address", "vni"},
	{"port", "port", ""},
	{"interface", "port", ""},
	{"uplink", "port", ""},
	{"address", "next_hop", "ifindex"},
	{"file", "config", ""},
	{"about", "config", ""},
}

// about returns what attributes say that an event is about.
func about(attrs map[string]string) (kind, object string) {
	for _, k := range kinds {
		object, ok := attrs[k.attr]
		if !ok {
			continue
		}
		switch by, ok := attrs[k.by]; {
		case k.by == "ifindex" && !ok:
			continue // where something is served
		case k.by == "uplink" && ok:
			return "path", object + " by " + by
		case k.by == "vni" && ok:
			return k.kind, object + " in VNI " + by
		}
		return k.kind, object
	}
	return "node", attrs["node"]
}
