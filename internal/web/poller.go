package web

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"time"

	"github.com/loomfabric/loom/internal/admin"
)

const (
	// askTimeout is how long a node has for an answer.
	askTimeout = 5 * time.Second
	// roundShare is the part of the interval after which a round goes without those that
	// have not answered; their answers belong to the next one.
	roundShare = 0.6
)

// Asker asks a node, as [admin.Client] does.
type Asker interface {
	Get(ctx context.Context, what string, q url.Values) (json.RawMessage, error)
}

// Node is a node that is asked.
type Node struct {
	Name string
	Asker
}

// poller asks all nodes again and again.
type poller struct {
	nodes []Node
	every time.Duration
	ring  *ring
	log   *slog.Logger

	busy  []bool
	came  chan named
	model *model
	quiet map[string]string // errors that the log knows, by node
}

// named is the answer of a node.
type named struct {
	node int
	answer
}

func newPoller(nodes []Node, every time.Duration, r *ring, log *slog.Logger) *poller {
	names := make([]string, len(nodes))
	for i := range nodes {
		names[i] = nodes[i].Name
	}
	return &poller{
		nodes: nodes, every: every, ring: r, log: log, model: newModel(names),
		busy: make([]bool, len(nodes)), came: make(chan named, len(nodes)), quiet: make(map[string]string),
	}
}

// run asks until ctx ends.
func (p *poller) run(ctx context.Context) error {
	tick := time.NewTicker(p.every)
	defer tick.Stop()
	for {
		messages := p.model.step(time.Now(), p.round(ctx))
		if ctx.Err() != nil {
			return nil
		}
		if err := p.ring.add(time.Now(), messages); err != nil {
			return fmt.Errorf("keep what the nodes said: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// round asks the nodes that are not being asked. It returns the answers that come in
// time, and those to earlier rounds.
func (p *poller) round(ctx context.Context) map[string]answer {
	for i := range p.nodes {
		if !p.busy[i] {
			p.busy[i] = true
			go func() { p.came <- named{i, ask(ctx, p.nodes[i])} }()
		}
	}
	late := time.NewTimer(time.Duration(roundShare * float64(p.every)))
	defer late.Stop()
	answers := make(map[string]answer)
	for slices.Contains(p.busy, true) {
		select {
		case x := <-p.came:
			p.busy[x.node] = false
			name := p.nodes[x.node].Name
			answers[name] = x.answer
			if ctx.Err() == nil {
				p.tell(name, x.err)
			}
		case <-late.C:
			return answers
		case <-ctx.Done():
			return answers
		}
	}
	return answers
}

// tell logs an error once, until there is another one or none.
func (p *poller) tell(node string, err error) {
	was := p.quiet[node]
	switch {
	case err == nil && was != "":
		p.log.Info("a node answers again", "node", node)
		delete(p.quiet, node)
	case err != nil && err.Error() != was:
		p.log.Warn("a node does not answer", "node", node, "err", err)
		p.quiet[node] = err.Error()
	}
}

// ask gets a node's snapshot.
func ask(ctx context.Context, n Node) answer {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	raw, err := n.Get(ctx, "snapshot", nil)
	if err != nil {
		return answer{err: err}
	}
	return decode(raw)
}

// decode reads a snapshot.
func decode(raw []byte) answer {
	s := &admin.Snapshot{}
	if err := json.Unmarshal(raw, s); err != nil {
		return answer{err: fmt.Errorf("understand the node's snapshot: %w; is loomweb of the same version as the daemon?", err)}
	}
	if s.Format != admin.SnapshotFormat {
		return answer{err: fmt.Errorf("the snapshot has format %d, and this loomweb reads %d: install the daemon's version of loomweb", s.Format, admin.SnapshotFormat)}
	}
	return answer{snapshot: s}
}
