package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/loomfabric/loom/control"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/handover"
	"github.com/loomfabric/loom/internal/httpd"
)

// handoverPath returns where a daemon listens for its successor: beside the admin socket.
// "": it has none, and so no place to be found at.
func (n *node) handoverPath() string {
	path, ok := strings.CutPrefix(n.common.Admin.Listen, "unix:")
	if !ok {
		return ""
	}
	return strings.TrimSuffix(path, ".sock") + ".handover"
}

// offer is what a daemon tells its successor, in JSON.
type offer struct {
	Kind      string
	Version   string
	Listeners []offeredListener // whose descriptors follow those of the data plane
	Plane     dataplane.Plan
}

type offeredListener struct{ Name, Address string }

// The names of listeners in an offer.
const (
	listenMetrics     = "metrics"
	listenAdminAPI    = "admin"
	listenAdminRemote = "admin-remote"
	listenHandover    = "handover"
)

// predecessor is the daemon as its successor sees it.
type predecessor struct {
	*dataplane.Node
	kind      Kind
	listeners []namedListener
	manager   *manager
	log       *slog.Logger
	released  chan struct{} // closed by Release
}

type namedListener struct {
	offeredListener
	net.Listener
}

// Plan returns the node's plan and the daemon's listeners.
func (p *predecessor) Plan() ([]byte, []*os.File, error) {
	plane, files, err := p.Node.Plan()
	if err != nil {
		return nil, nil, err
	}
	x := offer{Kind: p.kind.name, Version: p.kind.version, Plane: *plane}
	for _, l := range p.listeners {
		f, err := handover.Copy(l.Listener)
		if err != nil {
			p.log.Warn("the successor has to listen anew", "at", l.Address, "err", err)
			continue
		}
		x.Listeners, files = append(x.Listeners, l.offeredListener), append(files, f)
	}
	text, err := json.Marshal(x)
	if err != nil {
		for _, f := range files {
			f.Close()
		}
		p.Node.Resume()
		return nil, nil, err
	}
	p.log.Info("a successor is getting ready")
	return text, files, nil
}

// Early returns the node's addresses.
func (p *predecessor) Early() ([]byte, error) { return p.Node.Early(), nil }

// Release ends the daemon: the process that took over is the service now.
func (p *predecessor) Release(process int) []byte {
	close(p.released)
	for _, l := range p.listeners {
		if u, ok := l.Listener.(*net.UnixListener); ok {
			u.SetUnlinkOnClose(false) // its file is the successor's
		}
	}
	// Only the main process may name another one.
	p.manager.notify(fmt.Sprintf("MAINPID=%d", process))
	last := p.Node.Release()
	p.log.Info("handed over", "to", process)
	return last
}

// heir is a daemon's predecessor, from its own side.
type heir struct {
	*handover.Successor
	offer     offer
	files     []*os.File // of the plane
	listeners map[string]net.Listener
	log       *slog.Logger
}

// meet connects to the daemon that runs, if one does, and has n take over from its plan
// what must be the same. nil, nil: none runs.
func (k Kind) meet(n *node, f *control.Facts) (*heir, error) {
	path := n.handoverPath()
	if path == "" {
		return nil, errors.New("admin.listen is off, so that there is no place to take over at: give it a path, and restart")
	}
	s, err := handover.Meet(path)
	if errors.Is(err, handover.ErrAlone) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	h := &heir{Successor: s, listeners: make(map[string]net.Listener)}
	if err := h.read(k.name); err != nil {
		h.fail(err)
		return nil, fmt.Errorf("take over at %s: %w", path, err)
	}
	n.dp.Adapt(&h.offer.Plane)
	for _, p := range h.offer.Plane.Ports {
		if x, ok := f.Ports[p.Name]; ok {
			x.XDP = 0 // its program is about to be this daemon's
			f.Ports[p.Name] = x
		}
	}
	return h, nil
}

// read reads the plan and takes the listeners.
func (h *heir) read(kind string) error {
	if err := json.Unmarshal(h.Plan, &h.offer); err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	if h.offer.Kind != kind {
		return fmt.Errorf("it is %s's, not %s's", h.offer.Kind, kind)
	}
	if len(h.offer.Listeners) > len(h.Files) {
		return fmt.Errorf("%d descriptors came for %d listeners", len(h.Files), len(h.offer.Listeners))
	}
	at := len(h.Files) - len(h.offer.Listeners)
	h.files = h.Files[:at]
	for i, l := range h.offer.Listeners {
		f := h.Files[at+i]
		got, err := net.FileListener(f)
		f.Close()
		if err != nil {
			return fmt.Errorf("listener at %s: %w", l.Address, err)
		}
		h.listeners[l.Name+" "+l.Address] = got
	}
	return nil
}

// listener returns the predecessor's listener at an address; nil: it has none there.
func (h *heir) listener(name, address string) net.Listener {
	if h == nil {
		return nil
	}
	key := name + " " + address
	l := h.listeners[key]
	delete(h.listeners, key)
	return l
}

// fail tells the predecessor why it goes on.
func (h *heir) fail(err error) {
	h.Refuse(err)
	h.closeListeners()
}

// closeListeners closes listeners that this daemon does not want.
func (h *heir) closeListeners() {
	for _, l := range h.listeners {
		l.Close()
	}
	h.listeners = nil
}

// takeOver goes through the steps until this node is the one that forwards. With an error
// the predecessor is.
func (h *heir) takeOver(ctx context.Context, plane *dataplane.Node) error {
	err := plane.Prepare(ctx, h.Early)
	var snapshot []byte
	if err == nil {
		snapshot, err = h.Take()
	}
	if err == nil {
		err = plane.Load(snapshot)
	}
	if err == nil {
		err = h.Taken()
	}
	if err != nil {
		h.fail(err)
		return fmt.Errorf("not taken over, the daemon of before goes on: %w", err)
	}
	return nil
}

// settle does what has time until this node forwards.
func (h *heir) settle(plane *dataplane.Node) {
	last, err := h.Last()
	if err != nil {
		h.log.Warn("the predecessor's last word is missing", "err", err)
	}
	plane.Settle(last)
	h.closeListeners()
	h.log.Info("taken over", "pause", plane.Pause(), "from", h.offer.Version)
	_ = h.Close()
}

// listenAt returns the predecessor's listener at an address, or opens one.
func listenAt(h *heir, name, address string, open func() (net.Listener, error)) (net.Listener, error) {
	if l := h.listener(name, address); l != nil {
		return l, nil
	}
	return open()
}

// listenForSuccessor opens the socket for successors; nil: there is none, which the log says.
func listenForSuccessor(h *heir, n *node, log *slog.Logger) *net.UnixListener {
	path := n.handoverPath()
	if path == "" {
		return nil
	}
	l, err := listenAt(h, listenHandover, path, func() (net.Listener, error) {
		l, err := httpd.Listen("unix:"+path, "a successor", "admin.listen")
		if err == nil {
			err = os.Chmod(path, 0o600)
		}
		return l, err
	})
	if err != nil {
		log.Warn("no upgrade without loss: a successor cannot connect", "err", err)
		return nil
	}
	return l.(*net.UnixListener)
}

// awaitSuccessor serves successors until ctx ends or one has taken over.
func (k Kind) awaitSuccessor(ctx context.Context, s *service, again *reloader, released chan struct{}) {
	program := self()
	server := handover.Server{
		Listener: s.successor, Log: s.log,
		Daemon: &predecessor{s.plane, k, s.named(s.node), &again.manager, s.log, released},
		Start:  func(ctx context.Context) error { return k.startSuccessor(ctx, program, s.file, released) },
	}
	server.Serve(ctx)
}

// upgradeCommand returns the command that has the daemon that runs start its successor.
func (k Kind) upgradeCommand(file *string, out io.Writer) *cobra.Command {
	return &cobra.Command{
		Use: "upgrade", Short: "Have the daemon that runs start its successor, which takes over without losing a frame",
		Long: "Have the daemon that runs start its successor: the program that stands where its own came from, with the file as it is now.\n" +
			"It takes over between two bursts, and the daemon of before ends. If it cannot, that one goes on.",
		RunE: func(*cobra.Command, []string) error {
			n, err := k.load(*file, nil)
			if err != nil {
				return err
			}
			path := n.handoverPath()
			if path == "" {
				return errors.New("admin.listen is off, so that the daemon cannot be asked: restart it")
			}
			if err := handover.Upgrade(path, upgradeTime); err != nil {
				return err
			}
			_, err = fmt.Fprintf(out, "%s: its successor has taken over\n", k.name)
			return err
		},
	}
}

// Times of an upgrade that somebody has asked for.
const (
	checkTime   = 30 * time.Second
	upgradeTime = 3 * time.Minute
)

// startSuccessor runs the program that stands where this one came from: a newer version, if
// somebody has put it there. It returns when that one has taken over, or why it has not.
func (k Kind) startSuccessor(ctx context.Context, program, file string, released <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, upgradeTime)
	defer cancel()
	checking, done := context.WithTimeout(ctx, checkTime)
	defer done()
	// Its words are for whoever asked: the successor itself writes to the log.
	if out, err := exec.CommandContext(checking, program, "check", "--offline", "-c", file).CombinedOutput(); err != nil {
		return fmt.Errorf("%s check: %w: %s", program, err, bytes.TrimSpace(out))
	}
	next := exec.Command(program, "run", "--takeover", "-c", file)
	next.Stdout, next.Stderr = os.Stdout, os.Stderr
	// The watchdog is the main process's, which it is about to be.
	next.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "WATCHDOG_PID=") })
	if err := next.Start(); err != nil {
		return fmt.Errorf("start the successor: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = next.Wait() // ProcessState says it
	}()
	select {
	case <-released:
		return nil
	case <-ended:
		return fmt.Errorf("the successor (process %d) has ended: %v; its log says why", next.Process.Pid, next.ProcessState)
	case <-ctx.Done():
		select {
		case <-released: // it is why this daemon ends
			return nil
		default:
		}
		// It is left alone: it may be about to take over, and ends if it cannot.
		return fmt.Errorf("the successor (process %d) has not taken over: %w", next.Process.Pid, ctx.Err())
	}
}

// self returns the path of the daemon's program, by the name that it was started with: what
// stands there later is its successor.
func self() string {
	if path, err := exec.LookPath(os.Args[0]); err == nil {
		return path
	}
	return os.Args[0]
}
