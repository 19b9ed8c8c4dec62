package dataplane

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/internal/snapshot"
	"github.com/loomfabric/loom/leaf"
)

// save writes all that the worker leaves. It does not run, and its brain holds nothing.
// Of addresses it writes those that were noted since a time.
func (w *worker) save(s *snapshot.Writer, now, since mono.Time) {
	w.saveFrames(s)
	l := w.leaf
	if l == nil {
		return
	}
	l.saveFDB(s, now, since, 0, l.fdb.Buckets())
	if w.view == nil {
		return
	}
	s.Begin(sectionPeers, versionPeers)
	savePeers(s, len(w.view.tables.Peers), l.brain.SavePeer)
	s.End()
	l.brain.SaveClasses(now, s)
}

// savePeers writes what a leaf's workers have in common.
func (s *shared) savePeers(w *snapshot.Writer, peers int) {
	w.Begin(sectionShared, versionShared)
	s.leaf.Save(w)
	savePeers(w, peers, s.leaf.SavePeer)
	w.End()
}

func savePeers(w *snapshot.Writer, peers int, each func(*snapshot.Writer, uint16)) {
	w.U32(uint32(peers))
	for p := range peers {
		at := w.Open()
		each(w, uint16(p))
		w.Close(at)
	}
}

// errUplinks is why what is known by LBTag cannot be used.
var errUplinks = errors.New("the uplinks are others, or in another order, and tags mean something else")

// loadPeers reads what savePeers wrote.
func (s *shared) loadPeers(section *snapshot.Section, t *translation) error {
	if err := wanted(section, versionShared); err != nil {
		return err
	}
	if !t.sameUplinks {
		return errUplinks
	}
	r := snapshot.NewReader(section.Body)
	s.leaf.Load(r)
	return loadPeers(r, t, s.leaf.LoadPeer)
}

// loadPeers reads what savePeers wrote, without peers that are no more.
func loadPeers(r *snapshot.Reader, t *translation, each func(*snapshot.Reader, uint16)) error {
	for old := range r.Count(4) {
		one := snapshot.NewReader(r.Blob())
		p, ok := t.peer(uint16(old))
		if !ok || r.Err() != nil {
			continue
		}
		if each(one, p); one.Done() != nil {
			return fmt.Errorf("peer %d: %w", old, one.Done())
		}
	}
	return r.Done()
}

// load reads what save wrote, but for the frames. A section that cannot be used is logged.
// It reports whether all flows that receivers know by numbers go on with theirs.
func (w *worker) load(sections []snapshot.Section, t *translation, before []uint32, now mono.Time, log *slog.Logger) (numbered bool) {
	l := w.leaf
	if l == nil {
		return true
	}
	loaded := make(map[string]bool)
	for i := range sections {
		s := &sections[i]
		var err error
		switch {
		case s.Name == sectionFrames:
		case s.Name == sectionFDB:
			err = l.loadFDB(s, t, before, now)
		case s.Name == sectionPeers:
			err = l.loadPeers(s, t)
		case leaf.ClassSection(s.Name) && s.Broken != nil:
			err = s.Broken
		case leaf.ClassSection(s.Name) && !t.sameUplinks:
			err = errUplinks
		case leaf.ClassSection(s.Name):
			err = l.brain.LoadClass(s, t.peer)
		default:
			err = errors.New("this version does not know it")
		}
		if err != nil {
			log.Warn("a part of what the predecessor left is not used", "worker", w.id, "section", s.Name, "version", s.Version, "err", err)
		}
		loaded[s.Name] = err == nil
	}
	return l.brain.Continues(loaded)
}

func (l *leafWorker) loadFDB(s *snapshot.Section, t *translation, before []uint32, now mono.Time) error {
	if err := wanted(s, versionFDB); err != nil {
		return err
	}
	flushed, all, err := readFDB(s.Body, t)
	if err != nil {
		return err
	}
	l.learnCarried(flushed, before, all, t, now)
	return nil
}

func (l *leafWorker) loadPeers(s *snapshot.Section, t *translation) error {
	if err := wanted(s, versionPeers); err != nil {
		return err
	}
	if !t.sameUplinks {
		return errUplinks
	}
	return loadPeers(snapshot.NewReader(s.Body), t, l.brain.LoadPeer)
}

// sectionsOf returns the sections of a worker's snapshot, with its frames, which it cannot
// do without.
func sectionsOf(body []byte, t *translation) (sections []snapshot.Section, frames *carriedFrames, err error) {
	if sections, err = snapshot.Sections(body); err != nil {
		return nil, nil, err
	}
	for i := range sections {
		if s := &sections[i]; s.Name == sectionFrames {
			if err = wanted(s, versionFrames); err == nil {
				frames, err = readFrames(s.Body, t)
			}
			if err != nil {
				return nil, nil, fmt.Errorf("section %s: %w", s.Name, err)
			}
		}
	}
	if frames == nil {
		return nil, nil, fmt.Errorf("section %s is missing", sectionFrames)
	}
	return sections, frames, nil
}
