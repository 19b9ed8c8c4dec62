package handover

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/testenv"
)

// daemon is a predecessor whose only business is to know whether it forwards.
type daemon struct {
	files      int
	forwards   atomic.Bool
	released   atomic.Bool
	stops      atomic.Int32
	resumed    chan struct{}
	plan, stop atomic.Pointer[error]
	during     map[string]func()
}

func newDaemon() *daemon {
	d := &daemon{files: 450, resumed: make(chan struct{}, 10)}
	d.forwards.Store(true)
	return d
}

func (d *daemon) Plan() ([]byte, []*os.File, error) {
	var files []*os.File
	for i := range d.files {
		f, err := os.CreateTemp("", "handover")
		if err != nil {
			return nil, nil, err
		}
		os.Remove(f.Name())
		fmt.Fprint(f, i)
		files = append(files, f)
	}
	return []byte("plan"), files, problem(&d.plan) // after a problem nobody resumes
}

func (d *daemon) Early() ([]byte, error) {
	d.at("early")
	return bytes.Repeat([]byte("early"), 1<<18), nil
}

// at does what is to be done at a step.
func (d *daemon) at(step string) {
	if f := d.during[step]; f != nil {
		f()
	}
}

func (d *daemon) Stop() ([]byte, error) {
	d.stops.Add(1)
	d.forwards.Store(false)
	d.at("stop")
	err := problem(&d.stop)
	if err != nil {
		d.forwards.Store(true)
	}
	return []byte("snapshot"), err
}

func problem(p *atomic.Pointer[error]) error {
	if err := p.Load(); err != nil {
		return *err
	}
	return nil
}

func setProblem(p *atomic.Pointer[error], text string) {
	err := errors.New(text)
	p.Store(&err)
}

func (d *daemon) Resume() { d.forwards.Store(true); d.resumed <- struct{}{} }

func (d *daemon) Release(int) []byte { d.released.Store(true); return []byte("last") }

// serve starts a server and returns where, and what it ends with.
func (d *daemon) serve(t *testing.T, start func(context.Context) error) (path string, taken chan bool) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "s")
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	return path, d.serveUntil(t, ctx, path, start)
}

// serveUntil is serve at a path, until ctx ends.
func (d *daemon) serveUntil(t *testing.T, ctx context.Context, path string, start func(context.Context) error) (taken chan bool) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	taken = make(chan bool, 1)
	s := &Server{Listener: l, Daemon: d, Start: start, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	go func() { taken <- s.Serve(ctx) }()
	return taken
}

func openFiles(t *testing.T) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(d)
}

// All steps: each side gets what the other one sent, with every descriptor in its place,
// and at no time do both forward.
func TestTakeOver(t *testing.T) {
	d := newDaemon()
	path, taken := d.serve(t, nil)
	before := openFiles(t)
	s, err := Meet(path)
	if err != nil {
		t.Fatal(err)
	}
	early, _ := d.Early()
	if string(s.Plan) != "plan" || len(s.Files) != d.files || !bytes.Equal(s.Early, early) {
		t.Fatalf("plan %q with %d files, %d bytes early", s.Plan, len(s.Files), len(s.Early))
	}
	for i, f := range s.Files {
		b := make([]byte, 10)
		if n, _ := f.ReadAt(b, 0); string(b[:n]) != fmt.Sprint(i) {
			t.Fatalf("file %d says %q", i, b[:n])
		}
		f.Close()
	}
	if !d.forwards.Load() {
		t.Error("the predecessor stopped before it was told to")
	}
	if other, err := Meet(path); err == nil || !strings.Contains(err.Error(), "another successor") || !errors.Is(err, ErrRefused) {
		t.Errorf("a second successor: %v, %v", other, err)
	}
	snapshot, err := s.Take()
	if err != nil || string(snapshot) != "snapshot" || d.forwards.Load() {
		t.Fatalf("%q, %v; it forwards: %v", snapshot, err, d.forwards.Load())
	}
	if err := s.Taken(); err != nil {
		t.Fatal(err)
	}
	last, err := s.Last()
	if err != nil || string(last) != "last" {
		t.Errorf("%q, %v", last, err)
	}
	if !<-taken || !d.released.Load() || d.forwards.Load() {
		t.Error("the predecessor does not know that it is gone")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the socket's file, which the successor listens at too: %v", err)
	}
	// The listener itself was handed over in real life; here it is closed.
	if after := openFiles(t); after >= before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

// Whenever the successor goes away before it has said that it goes on, the predecessor
// does, and serves the next one.
func TestSuccessorGone(t *testing.T) {
	d := newDaemon()
	d.files = 3
	path, taken := d.serve(t, nil)
	for name, steps := range map[string]func(*Successor) error{
		"after the plan":        func(*Successor) error { return nil },
		"after a refusal":       func(s *Successor) error { s.Refuse(errors.New("cannot")); return nil },
		"without the snapshot":  func(s *Successor) error { return s.conn.send(kindTake, nil) },
		"with the snapshot":     func(s *Successor) error { _, err := s.Take(); return err },
		"refusing the snapshot": func(s *Successor) error { _, err := s.Take(); s.Refuse(errors.New("cannot")); return err },
		"with a word too little": func(s *Successor) error {
			_, err := s.Take()
			_, _ = s.conn.c.Write([]byte{byte(kindTaken), 0})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Meet(path)
			for err != nil && strings.Contains(err.Error(), "another successor") { // it has yet to notice
				s, err = Meet(path)
			}
			if err != nil {
				t.Fatal(err)
			}
			closeAll(s.Files)
			if err := steps(s); err != nil {
				t.Fatal(err)
			}
			s.Close()
			<-d.resumed
			if !d.forwards.Load() || d.released.Load() {
				t.Error("the predecessor does not go on")
			}
		})
	}
	s, err := Meet(path)
	for err != nil && strings.Contains(err.Error(), "another successor") {
		s, err = Meet(path)
	}
	if err != nil {
		t.Fatal(err)
	}
	closeAll(s.Files)
	if _, err := s.Take(); err != nil {
		t.Fatal(err)
	}
	if err := s.Taken(); err != nil {
		t.Fatal(err)
	}
	s.Close() // it dies after that word: the predecessor is gone all the same
	if !<-taken {
		t.Error("not taken")
	}
}

// A word that comes too late is refused by the kernel, so that its sender knows; one that
// came in time counts, although nobody had read it.
func TestLateTaken(t *testing.T) {
	for _, late := range []bool{false, true} {
		pair := func() (a, b *conn) {
			path := filepath.Join(t.TempDir(), "s")
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			if a, err = dial(path); err != nil {
				t.Fatal(err)
			}
			c, err := l.AcceptUnix()
			if err != nil {
				t.Fatal(err)
			}
			return a, newConn(c)
		}
		a, b := pair()
		s := &Successor{conn: a}
		if !late {
			if err := s.Taken(); err != nil {
				t.Fatal(err)
			}
		}
		if got := b.lateTaken(); got == late {
			t.Errorf("late %v: the predecessor thinks that it was taken: %v", late, got)
		}
		if late {
			if err := s.Taken(); err == nil {
				t.Error("the successor does not know that it was too late")
			}
		}
		a.close()
		b.close()
	}
}

// A server that cannot accept for a while, for want of descriptors, is there afterwards.
func TestAcceptsAfterWantOfFiles(t *testing.T) {
	d := newDaemon()
	d.files = 1
	path, _ := d.serve(t, nil)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
	time.Sleep(20 * time.Millisecond) // it tries
	if back := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); back != nil || err != nil {
		t.Fatal(back, err)
	}
	s, err := Meet(path)
	if err != nil {
		t.Fatal(err)
	}
	closeAll(s.Files)
	s.Close()
}

// A daemon that is told to end while a successor gets ready, or just before it stops, ends
// alone and soon: it has said goodbye to others, who believe nothing more of its process.
func TestEndsWhileItHandsOver(t *testing.T) {
	for _, step := range []string{"early", "stop", "take"} {
		t.Run(step, func(t *testing.T) {
			d := newDaemon()
			d.files = 1
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			d.during = map[string]func(){step: cancel}
			path := filepath.Join(t.TempDir(), "s")
			taken := d.serveUntil(t, ctx, path, nil)
			s, err := Meet(path)
			switch {
			case err != nil && step != "early":
				t.Fatal(err)
			case err == nil:
				defer s.Close()
				closeAll(s.Files)
				if step == "take" {
					time.AfterFunc(20*time.Millisecond, cancel) // and no word from the successor
				} else if _, err := s.Take(); err == nil {
					t.Error("it handed over")
				}
			}
			select {
			case yes := <-taken:
				if yes || d.released.Load() || !d.forwards.Load() {
					t.Errorf("taken %t, released %t, forwards %t", yes, d.released.Load(), d.forwards.Load())
				}
			case <-time.After(5 * time.Second):
				t.Fatal("it waits for its successor")
			}
		})
	}
}

// nobody is a user who is neither root nor the tests'.
const nobody = 65534

// asNobody calls f on a thread of that user's.
func asNobody(t *testing.T, f func() error) {
	t.Helper()
	testenv.NeedRoot(t)
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody); e != 0 {
			done <- e
			return
		}
		done <- f()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// TestForeignListener: whoever can write to the socket's directory can listen at the
// daemon's place. A successor says whose process that is, and tells and takes nothing.
func TestForeignListener(t *testing.T) {
	dir, err := os.MkdirTemp("", "handover") // below a directory that anybody may enter
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s")
	var l *net.UnixListener
	asNobody(t, func() (err error) {
		l, err = net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		return err
	})
	defer l.Close()
	heard := make(chan int)
	go func() {
		c, err := l.Accept()
		if err != nil {
			close(heard)
			return
		}
		defer c.Close()
		b, _ := io.ReadAll(c)
		heard <- len(b)
	}()
	s, err := Meet(path)
	if err == nil {
		s.Close()
		t.Fatal("it met a stranger")
	}
	if !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "of user 65534") || errors.Is(err, ErrAlone) {
		t.Errorf("error %v", err)
	}
	if n := <-heard; n != 0 {
		t.Errorf("the stranger was told %d bytes", n)
	}
}

// TestForeignSuccessor: who can connect, as by a mistake in the socket's mode, gets nothing.
func TestForeignSuccessor(t *testing.T) {
	d := newDaemon()
	d.files = 1
	path, _ := d.serve(t, nil)
	if err := errors.Join(os.Chmod(path, 0o777), os.Chmod(filepath.Dir(path), 0o777), os.Chmod(filepath.Dir(filepath.Dir(path)), 0o777)); err != nil {
		t.Fatal(err)
	}
	var c *conn
	asNobody(t, func() (err error) {
		c, err = dial(path)
		return err
	})
	defer c.close()
	if _, _, err := c.expect(kindPlan, time.Minute); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "of user 65534 may not") {
		t.Errorf("error %v", err)
	}
}

func TestRefusals(t *testing.T) {
	d := newDaemon()
	d.files = 1
	setProblem(&d.plan, "no plan today")
	path, _ := d.serve(t, nil)
	if _, err := Meet(path); err == nil || !strings.Contains(err.Error(), "no plan today") {
		t.Errorf("error %v", err)
	}
	d.plan.Store(nil)
	setProblem(&d.stop, "a worker does not answer")
	s, err := Meet(path)
	if err != nil {
		t.Fatal(err)
	}
	closeAll(s.Files)
	if _, err := s.Take(); err == nil || !strings.Contains(err.Error(), "does not answer") || !errors.Is(err, ErrRefused) {
		t.Errorf("error %v", err)
	}
	s.Close()
	c, err := dial(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	if err := c.send(kindHello, []byte{99, 0}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.expect(kindPlan, time.Minute); err == nil || !strings.Contains(err.Error(), "version 99") {
		t.Errorf("another protocol: %v", err)
	}
	if err := Upgrade(path, time.Minute); err == nil || !strings.Contains(err.Error(), "cannot start") {
		t.Errorf("upgrade: %v", err)
	}
	if !d.forwards.Load() {
		t.Error("it does not forward any more")
	}
	if _, err := Meet(filepath.Join(t.TempDir(), "none")); !errors.Is(err, ErrAlone) {
		t.Errorf("nobody there: %v", err)
	}
}

func TestUpgrade(t *testing.T) {
	d := newDaemon()
	d.files = 1
	var at atomic.Pointer[string]
	var fail atomic.Pointer[error]
	path, taken := d.serve(t, func(context.Context) error {
		if err := problem(&fail); err != nil {
			return err
		}
		s, err := Meet(*at.Load())
		if err != nil {
			return err
		}
		defer s.Close()
		closeAll(s.Files)
		if _, err := s.Take(); err != nil {
			return err
		}
		return s.Taken()
	})
	at.Store(&path)
	setProblem(&fail, "leafd.yaml:3: no")
	if err := Upgrade(path, time.Minute); err == nil || !strings.Contains(err.Error(), "leafd.yaml:3") {
		t.Errorf("error %v", err)
	}
	fail.Store(nil)
	if err := Upgrade(path, time.Minute); err != nil {
		t.Error(err)
	}
	if !<-taken {
		t.Error("not taken")
	}
}
