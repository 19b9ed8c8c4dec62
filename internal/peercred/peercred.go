// Package peercred says who is at the other end of a Unix socket.
package peercred

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Of returns the process that connected or, at a client's end, that began to listen.
func Of(c *net.UnixConn) (cred *unix.Ucred, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cerr error
	if err := raw.Control(func(fd uintptr) { cred, cerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return nil, err
	}
	if cerr != nil {
		return nil, fmt.Errorf("ask who is at the other end: %w", cerr)
	}
	return cred, nil
}

// Trusted reports whether a process is root's, or one of this process's own user.
func Trusted(p *unix.Ucred) bool { return p.Uid == 0 || p.Uid == uint32(os.Geteuid()) }
