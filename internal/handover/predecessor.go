package handover

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Times that the steps have. Workers stand still between the snapshot and the word that
// it was taken, so that this one is short: a successor that needs longer has lost
// frames anyway.
const (
	stepTime    = 10 * time.Second
	prepareTime = 2 * time.Minute // what a successor has for its own start
	takenTime   = 3 * time.Second
	acceptRetry = 200 * time.Millisecond // after a connection that could not be accepted
)

// Predecessor is a daemon that forwards, and may have a successor. Its methods are
// called in this order, by one goroutine.
type Predecessor interface {
	// Plan says what there is, and returns copies of all descriptors, which are closed
	// when they were sent. The daemon goes on.
	Plan() (plan []byte, files []*os.File, err error)
	// Early returns what does not change much. The daemon goes on.
	Early() ([]byte, error)
	// Stop stops the workers between two bursts and returns what is left. With an error
	// they go on.
	Stop() ([]byte, error)
	// Resume has the daemon go on after Plan or Stop: there is no successor.
	Resume()
	// Release is called after Stop: the successor, a process, goes on. No worker may any
	// more. It returns what the successor should know in the end.
	Release(process int) []byte
}

// Server lets successors connect. It serves one at a time.
type Server struct {
	Listener *net.UnixListener
	Daemon   Predecessor
	// Start starts the successor, for people who ask for an upgrade; nil: nobody may.
	Start func(context.Context) error
	Log   *slog.Logger

	one sync.Mutex
}

// Serve serves until ctx ends or a successor has taken over, and then closes the
// listener, whose file stays if there is a successor: that one listens there too. taken
// is true in the second case: the daemon has to end without a word.
func (s *Server) Serve(ctx context.Context) (taken bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = s.Listener.SetDeadline(time.Now()) })
	defer stop()
	var gone atomic.Bool
	var serving sync.WaitGroup
	for {
		c, err := s.Listener.AcceptUnix()
		if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed) {
			break
		}
		if err != nil { // as when there are too many open files, which may pass
			s.Log.Warn("a successor cannot connect; trying again", "err", err)
			time.Sleep(acceptRetry)
			continue
		}
		serving.Go(func() {
			if s.serve(ctx, c) {
				gone.Store(true)
				_ = s.Listener.SetDeadline(time.Now())
			}
		})
	}
	serving.Wait()
	taken = gone.Load()
	s.Listener.SetUnlinkOnClose(!taken)
	s.Listener.Close()
	return taken
}

// serve serves one connection and reports whether its process has taken over.
func (s *Server) serve(ctx context.Context, uc *net.UnixConn) (taken bool) {
	c := newConn(uc)
	defer c.close()
	stop := context.AfterFunc(ctx, func() { _ = uc.SetDeadline(time.Now()) })
	defer stop()
	c.keep = func() { stop() }
	process, err := mayConnect(uc)
	c.process = process
	var k kind
	var body []byte
	if err == nil {
		if err = uc.SetReadDeadline(time.Now().Add(stepTime)); err == nil {
			var files []*os.File
			k, body, files, err = c.receive()
			closeAll(files)
		}
	}
	switch {
	case errors.Is(err, io.EOF):
		return false // somebody who looked whether anybody is here
	case err != nil:
	case k == kindUpgrade && s.Start == nil:
		err = errors.New("this daemon cannot start another one")
	case k == kindUpgrade:
		if err = s.Start(ctx); err == nil {
			c.keep() // the daemon's end is no reason not to say so
			_ = uc.SetWriteDeadline(time.Now().Add(stepTime))
			_ = c.send(kindDone, nil) // who asked may not have waited
			return false
		}
	case k == kindHello && len(body) == 2:
		if v := binary.LittleEndian.Uint16(body); v != protocol {
			err = fmt.Errorf("the successor speaks version %d of the hand-over's protocol, and this daemon version %d: restart instead", v, protocol)
			break
		}
		if !s.one.TryLock() {
			err = errors.New("another successor is taking over")
			break
		}
		taken, err = s.handOver(ctx, c)
		s.one.Unlock() // who is refused may try again at once
		if taken {
			return true
		}
	default:
		err = fmt.Errorf("message %d makes no beginning", k)
	}
	if err != nil {
		s.Log.Error("not handed over: this daemon goes on", "err", err)
		_ = uc.SetWriteDeadline(time.Now().Add(stepTime))
		_ = c.send(kindRefuse, []byte(err.Error())) // it may be gone
	}
	return false
}

// handOver goes through the steps. With an error the daemon goes on, or ends as it was
// about to when ctx ended: it may have said goodbye to others by then, who would not believe
// its successor.
func (s *Server) handOver(ctx context.Context, c *conn) (taken bool, err error) {
	d := s.Daemon
	if err := c.c.SetWriteDeadline(time.Now().Add(prepareTime)); err != nil {
		return false, err
	}
	plan, files, err := d.Plan()
	if err != nil {
		return false, err
	}
	defer func() {
		if !taken {
			d.Resume()
		}
	}()
	err = c.send(kindPlan, plan, files...)
	closeAll(files)
	if err != nil {
		return false, err
	}
	early, err := d.Early()
	if err != nil {
		return false, err
	}
	if err := c.send(kindEarly, early); err != nil {
		return false, err
	}
	if _, files, err := c.expectUntil(ctx, kindTake, prepareTime); err != nil {
		return false, fmt.Errorf("the successor was not ready: %w", err)
	} else {
		closeAll(files)
	}
	snapshot, err := d.Stop()
	if err != nil {
		return false, err
	}
	if ctx.Err() != nil { // nothing that it does at its end comes between from here on
		return false, errEnding
	}
	err = c.c.SetWriteDeadline(time.Now().Add(takenTime))
	if err == nil {
		err = c.send(kindSnapshot, snapshot)
	}
	if err == nil {
		_, _, err = c.expect(kindTaken, takenTime)
	}
	if err != nil && !c.lateTaken() {
		return false, fmt.Errorf("the successor has not taken over: %w", err)
	}
	c.keep() // Release may end the daemon
	last := d.Release(c.process)
	_ = c.c.SetWriteDeadline(time.Now().Add(stepTime))
	_ = c.send(kindLast, last) // what is in it can be done without
	return true, nil
}

// errEnding is why a daemon that ends does not hand over.
var errEnding = errors.New("this daemon is about to end: start anew when it has")

// expectUntil is expect, but for the end of ctx, which is over at once.
func (c *conn) expectUntil(ctx context.Context, want kind, within time.Duration) (body []byte, files []*os.File, err error) {
	// Expect sets another deadline than the one that the end of ctx has set, or will set.
	defer context.AfterFunc(ctx, func() { _ = c.c.CloseRead() })()
	body, files, err = c.expect(want, within)
	if err != nil && ctx.Err() != nil {
		err = errEnding
	}
	return body, files, err
}

// lateTaken decides when a successor has not said in time that it goes on. From the
// shutdown on the kernel refuses its word, and what had come before is read: so either it
// has said it, or it cannot any more, and knows.
func (c *conn) lateTaken() bool {
	if err := c.c.CloseRead(); err != nil {
		return false
	}
	_, _, err := c.expect(kindTaken, stepTime)
	return err == nil
}
