package httpd

import (
	"context"
	"net"
	"net/http"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/peercred"
)

// peers notes who connects to a Unix socket.
type peers struct{ net.Listener }

// Accept returns the next connection.
func (l peers) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	u, ok := c.(*net.UnixConn)
	if err != nil || !ok {
		return c, err
	}
	cred, err := peercred.Of(u)
	if err != nil {
		return c, nil //nolint:nilerr // nobody in particular
	}
	return peerConn{c, peerAddr{c.RemoteAddr(), cred}}, nil
}

// peerConn is a connection that knows who is at its other end. It says so by an address,
// which is all that others that wrap it let through.
type peerConn struct {
	net.Conn
	peer peerAddr
}

func (c peerConn) RemoteAddr() net.Addr { return c.peer }

type peerAddr struct {
	net.Addr
	cred *unix.Ucred
}

type peerKey struct{}

// withPeer keeps who has connected.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	if a, ok := c.RemoteAddr().(peerAddr); ok {
		return context.WithValue(ctx, peerKey{}, a.cred)
	}
	return ctx
}

// PeerOf returns the process that sent a request over a Unix socket; nil: it came by
// another way, or who sent it is not known.
func PeerOf(r *http.Request) *unix.Ucred {
	cred, _ := r.Context().Value(peerKey{}).(*unix.Ucred)
	return cred
}
