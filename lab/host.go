package lab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/config/fabric"
	"github.com/loomfabric/loom/internal/workload/roce"
)

// Ports of every host.
const (
	dataPort = 5001 // TCP: answers and sinks
	udpPort  = 5002
)

// dialTimeout is long enough for two lost SYNs (1 s + 2 s).
const dialTimeout = 4 * time.Second

// host is a host of the lab during a run: the source and sink of its traffic. Its
// sockets are made in the host's namespace, and stay there: goroutines of this
// process use them from wherever they run.
type host struct {
	fabric.Host
	space, home netns.NsHandle // the host's namespace, and this process's
	congestion  string         // of its TCP connections
	multipath   bool           // they are MPTCP's
	// reserver says from which ports a connection has to begin, for its size; nil: from any.
	reserver balance.Reserver

	tcp  net.Listener
	udp  *net.UDPConn
	roce *net.UDPConn

	opened  []io.Closer
	load    atomic.Pointer[load] // nil until it begins
	serving sync.WaitGroup

	// receivers belong to the goroutine that serves roce.
	receivers map[queuePairID]*roceReceiver
	mu        sync.Mutex
	nics      map[uint32]*roceNIC // by workload: this host as a sender; under mu
}

// openHosts opens every host and serves it until stop is called.
func (l *Lab) openHosts() (hosts []*host, stop func(), err error) {
	ctx, cancel := context.WithCancel(context.Background())
	stop = func() {
		cancel()
		for _, h := range hosts {
			h.close()
		}
	}
	reserver := l.reserver()
	for _, t := range l.Topo.Hosts {
		h := &host{
			Host: t, congestion: l.File.TCP, multipath: l.File.Subflows > 0, reserver: reserver,
			receivers: map[queuePairID]*roceReceiver{}, nics: map[uint32]*roceNIC{},
		}
		hosts = append(hosts, h)
		if err := h.open(l.ns(t.Name)); err != nil {
			stop()
			return nil, nil, fmt.Errorf("host %s: %w", t.Name, err)
		}
		h.serving.Go(func() { h.serveTCP(ctx) })
		h.serving.Go(h.serveUDP)
		h.serving.Go(h.serveRoCE)
	}
	return hosts, stop, nil
}

// open opens the sockets that others send to.
func (h *host) open(ns string) (err error) {
	if h.home, err = netns.Get(); err != nil {
		return fmt.Errorf("this process's namespace: %w", err)
	}
	h.opened = append(h.opened, &h.home)
	if h.space, err = netns.GetFromName(ns); err != nil {
		return fmt.Errorf("namespace %s: %w", ns, err)
	}
	h.opened = append(h.opened, &h.space)
	return h.inside(func() (err error) {
		// Accepted connections inherit the congestion control.
		lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error { return onSocket(c, h.setCongestion) }}
		lc.SetMultipathTCP(h.multipath)
		if h.tcp, err = lc.Listen(context.Background(), "tcp4", fmt.Sprintf(":%d", dataPort)); err != nil {
			return err
		}
		h.opened = append(h.opened, h.tcp)
		if h.udp, err = h.listenUDP(udpPort); err != nil {
			return err
		}
		if h.roce, err = h.listenUDP(roce.Port); err != nil {
			return err
		}
		return likeNIC(h.roce)
	})
}

func (h *host) listenUDP(port int) (*net.UDPConn, error) {
	c, err := net.ListenUDP("udp4", &net.UDPAddr{Port: port})
	if err != nil {
		return nil, err
	}
	h.opened = append(h.opened, c)
	_ = c.SetReadBuffer(4 << 20) // best effort: a smaller one loses datagrams sooner
	return c, nil
}

// close closes the host's sockets and waits for those who serve them.
func (h *host) close() {
	for _, c := range h.opened {
		c.Close()
	}
	h.serving.Wait()
}

// onSocket calls fn with a socket's descriptor.
func onSocket(c syscall.RawConn, fn func(fd int) error) error {
	var err error
	return errors.Join(c.Control(func(fd uintptr) { err = fn(int(fd)) }), err)
}

// inside calls fn on a thread that is in the host's namespace meanwhile, for fn to
// make a socket there. fn must not wait: a thread that a locked goroutine waits on
// is of no use to others.
func (h *host) inside(fn func() error) error {
	runtime.LockOSThread()
	if err := netns.Set(h.space); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter the namespace of %s: %w", h.Name, err)
	}
	err := fn()
	if back := netns.Set(h.home); back != nil {
		return errors.Join(err, back) // the thread stays locked, and ends with its goroutine
	}
	runtime.UnlockOSThread()
	return err
}

func (h *host) setCongestion(fd int) error {
	if err := unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, h.congestion); err != nil {
		return fmt.Errorf("TCP congestion control %s: %w", h.congestion, err)
	}
	return nil
}

// ip returns the address that the host is reached by.
func (h *host) ip() netip.Addr { return h.Addr.Addr() }

// reserver returns the keys of the scheme, or of the first class, that tells flows by
// ports which hosts reserve; nil: none does.
func (l *Lab) reserver() balance.Reserver {
	r, ok := l.File.Params.(balance.Reserver)
	for i := 0; !ok && i < len(l.File.Classes); i++ {
		r, ok = l.File.Classes[i].Params.(balance.Reserver)
	}
	return r
}

// bind gives a socket one of the ports that are reserved for connections which carry so
// many bytes, if there are such ports.
func (h *host) bind(fd int, bytes uint64) (err error) {
	if h.reserver == nil {
		return nil
	}
	ports := h.reserver.Reserves(bytes)
	for range min(ports.Number(), 100) { // some of them may be in use
		port := int(ports.First) + rand.IntN(ports.Number())
		if err = unix.Bind(fd, &unix.SockaddrInet4{Port: port}); err == nil {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("bind to one of the reserved ports %v: %w", ports, err)
	}
	return nil
}

// dial connects to a server by TCP, for so many bytes, unless ctx ends. Only the socket is
// made inside the namespace: while it connects, others may use the thread.
func (h *host) dial(ctx context.Context, server *host, bytes uint64) (net.Conn, error) {
	var f *os.File
	proto := unix.IPPROTO_TCP
	if h.multipath {
		proto = unix.IPPROTO_MPTCP
	}
	err := h.inside(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, proto)
		if err != nil {
			return fmt.Errorf("socket: %w", err)
		}
		f = os.NewFile(uintptr(fd), "socket")
		return errors.Join(h.setCongestion(fd), h.bind(fd, bytes))
	})
	if f != nil {
		defer f.Close() // the connection has a descriptor of its own
	}
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { f.Close() })()
	if err := f.SetDeadline(time.Now().Add(dialTimeout)); err != nil {
		return nil, err
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	to := &unix.SockaddrInet4{Port: dataPort, Addr: server.ip().As4()}
	waited := raw.Write(func(fd uintptr) bool { // again when the socket has become writable
		err = unix.Connect(int(fd), to)
		return err != unix.EINPROGRESS && err != unix.EALREADY
	})
	if err := errors.Join(waited, err); err != nil {
		return nil, fmt.Errorf("connect to %s: %w", server.Name, err)
	}
	return net.FileConn(f)
}

// dialUDP makes a socket that sends to a port of another host.
func (h *host) dialUDP(to *host, port uint16) (c *net.UDPConn, err error) {
	err = h.inside(func() (err error) {
		c, err = net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to.ip(), port)))
		return err
	})
	return c, err
}

// Operations of a [header].
const (
	wantBytes = 'R' // answer with a number of bytes
	sinkBytes = 'B' // read all that follows
	pushBytes = 'P' // read a number of bytes that follow, and answer with one
)

// header begins each request on a connection to a host, and each datagram.
type header struct {
	Op       byte
	_        [3]byte
	Workload uint32
	Bytes    uint64
}

func (h header) encode() []byte {
	b, err := binary.Append(nil, binary.BigEndian, h)
	if err != nil {
		panic(err) // all fields have a fixed size
	}
	return b
}

const chunk = 64 << 10

// zeros is the payload of all flows; it is read-only.
var zeros [chunk]byte

// buffers holds buffers for payload that is read and discarded.
var buffers = sync.Pool{New: func() any { return new([chunk]byte) }}

func (h *host) serveTCP(ctx context.Context) {
	for {
		c, err := h.tcp.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors: give them time to come back
			time.Sleep(10 * time.Millisecond)
			continue
		}
		h.serving.Go(func() {
			defer c.Close()
			defer context.AfterFunc(ctx, func() { c.Close() })()
			h.serveConn(c)
		})
	}
}

// serveConn returns when the client has closed, or its host is unreachable.
func (h *host) serveConn(c net.Conn) {
	for {
		var head header
		if err := binary.Read(c, binary.BigEndian, &head); err != nil {
			return
		}
		switch head.Op {
		case wantBytes:
			for left := head.Bytes; left > 0; left -= min(left, chunk) {
				if _, err := c.Write(zeros[:min(left, chunk)]); err != nil {
					return
				}
			}
		case pushBytes:
			w := h.load.Load().work(head.Workload)
			if w == nil {
				return
			}
			if got, err := w.drain(io.LimitReader(c, int64(head.Bytes))); err != nil || uint64(got) < head.Bytes {
				return
			}
			if _, err := c.Write(zeros[:1]); err != nil {
				return
			}
		case sinkBytes:
			if w := h.load.Load().work(head.Workload); w != nil {
				_, _ = w.drain(c) // the client reports a connection that breaks
			}
			return
		default:
			return
		}
	}
}

func (h *host) serveUDP() {
	buf := make([]byte, chunk)
	for {
		n, err := h.udp.Read(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		var head header
		if err == nil {
			_, err = binary.Decode(buf[:n], binary.BigEndian, &head)
		}
		if err != nil {
			continue // an ICMP error of an earlier datagram, or not ours
		}
		if w := h.load.Load().work(head.Workload); w != nil {
			w.count(n)
			w.datagramsReceived.Add(1)
		}
	}
}
