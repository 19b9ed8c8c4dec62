package leaf

import (
	"fmt"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/internal/snapshot"
)

// What a leaf leaves to the process that goes on in its place, which has the same clock,
// the same flow hash and the same uplinks. To other leaves it is the same leaf, with the
// same boot number and nonces.

// Save writes what is the leaf's own.
func (s *Shared) Save(w *snapshot.Writer) {
	w.U64(s.secret[0])
	w.U64(s.secret[1])
	w.U32(s.boot)
	s.Paths.SaveRound(w)
}

// Load reads what Save wrote. It is called before anything is forwarded.
func (s *Shared) Load(r *snapshot.Reader) {
	secret, boot := Secret{r.U64(), r.U64()}, r.U32()
	s.Paths.LoadRound(r)
	if r.Err() == nil {
		s.secret, s.boot = secret, boot
	}
}

// Reboot gives the leaf another boot number: to its peers it has started anew, and what
// they know of its flows is void. Nonces and rounds go on. It is called before anything is
// forwarded.
func (s *Shared) Reboot() { s.boot = uint32(s.secret.hash(1<<63|uint64(s.boot))) | 1 }

// Continues reports whether the flows of all classes whose packets carry marks, by which
// receivers know them, go on. loaded are the sections that were used.
func (l *Leaf[T]) Continues(loaded map[string]bool) bool {
	for i, c := range l.classes {
		if c.Scheme.Shim && !loaded[className(i, c)] {
			return false
		}
	}
	return true
}

// boot is what peers know the leaf's run by.
func (s Secret) boot() uint32 { return uint32(s.hash(1<<63)) | 1 }

// SavePeer writes what all workers know of a peer.
func (s *Shared) SavePeer(w *snapshot.Writer, peer uint16) {
	s.Capable.Save(w, peer)
	s.To.Save(w, peer)
	s.From.Save(w, peer)
	s.Paths.Save(w, peer)
}

// LoadPeer reads what SavePeer wrote.
func (s *Shared) LoadPeer(r *snapshot.Reader, peer uint16) {
	s.Capable.Load(r, peer)
	s.To.Load(r, peer)
	s.From.Load(r, peer)
	s.Paths.Load(r, peer)
}

// SavePeer writes what this worker alone knows of a peer.
func (l *Leaf[T]) SavePeer(w *snapshot.Writer, peer uint16) {
	l.traffic.Save(w, peer)
	w.Bool(l.judge != nil)
	if l.judge != nil {
		l.judge.Save(w, peer)
	}
}

// LoadPeer reads what SavePeer wrote.
func (l *Leaf[T]) LoadPeer(r *snapshot.Reader, peer uint16) {
	l.traffic.Load(r, peer)
	switch judge := r.Bool(); {
	case r.Err() != nil:
	case judge != (l.judge != nil):
		r.Fail(fmt.Errorf("the worker judges paths: %v, and this one: %v", judge, l.judge != nil))
	case judge:
		l.judge.Load(r, peer)
	}
}

// SaveClasses writes the flows that classes know, each class for itself. It returns their
// number.
func (l *Leaf[T]) SaveClasses(now mono.Time, w *snapshot.Writer) (saved int) {
	for i, c := range l.classes {
		if p, ok := c.Policy.(balance.Carrier); ok {
			w.Begin(className(i, c), p.CarryVersion())
			p.Save(now, w)
			w.End()
			saved++
		}
	}
	return saved
}

// ClassSection reports whether a section of a snapshot is of a class's flows.
func ClassSection(name string) bool {
	return len(name) > len(classPrefix) && name[:len(classPrefix)] == classPrefix
}

const classPrefix = "flows/"

func className(i int, c *Class) string { return fmt.Sprintf("%s%d/%s", classPrefix, i, c.Scheme.Name) }

// LoadClass gives a section to the class that it is of. numbers translates the numbers of
// leaves; false: the leaf is no more. The error says why the class's flows start anew.
func (l *Leaf[T]) LoadClass(s *snapshot.Section, numbers func(uint16) (uint16, bool)) error {
	for i, c := range l.classes {
		if className(i, c) != s.Name {
			continue
		}
		p, ok := c.Policy.(balance.Carrier)
		if !ok {
			break
		}
		if s.Version != p.CarryVersion() {
			return fmt.Errorf("it has version %d, and this is version %d", s.Version, p.CarryVersion())
		}
		r := snapshot.NewReader(s.Body)
		p.Load(r, numbers)
		return r.Done()
	}
	return fmt.Errorf("no class of this leaf has these flows")
}
