package httpd

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

// socketMode lets the daemon's user and group connect, and nobody else.
const socketMode = 0o660

// dialWait is how long a process behind an existing socket has to accept.
const dialWait = time.Second

// Listen opens the listener that an address names: HOST:PORT, or unix: and the
// path of a socket in a directory that exists. For "" and "off" it returns nil, nil:
// nobody is served. What is served there and the key of the configuration are for
// errors.
//
// A socket file that a dead process left behind is removed. One that is in use,
// and a file that is no socket, are errors and stay as they are. Every error
// names the address and says what to do.
func Listen(address, what, key string) (l net.Listener, err error) {
	if address == "" || address == "off" {
		return nil, nil
	}
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		l, err = listenUnix(path, key)
	} else if l, err = net.Listen("tcp", address); err != nil {
		err = fmt.Errorf("%w: %s", err, remedy(err, key))
	}
	if err != nil {
		return nil, fmt.Errorf("serve %s at %s: %w", what, address, err)
	}
	return l, nil
}

// remedy says what to do about a TCP address that cannot be listened at.
func remedy(err error, key string) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "another process has the port; stop it, or give this daemon one of its own with " + key
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "no interface has this address; set " + key + " to one of this machine, as 127.0.0.1:9464"
	case errors.Is(err, syscall.EACCES):
		return "ports below 1024 need privilege; set " + key + " to a higher one, as 127.0.0.1:9464"
	default:
		return "set " + key + " to HOST:PORT, unix:/path/of/a/socket or off"
	}
}

func listenUnix(path, key string) (net.Listener, error) {
	if err := removeStale(path, key); err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		hint := "check that the directory can be written to and that the path is at most 107 bytes"
		if errors.Is(err, fs.ErrNotExist) {
			hint = "create the directory, or set " + key + " to a path in one that exists"
		}
		return nil, fmt.Errorf("%w: %s", err, hint)
	}
	if err := os.Chmod(path, socketMode); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// removeStale removes the socket of a process that is gone. Only a refused
// connection proves that: whatever else goes wrong, somebody may be there.
func removeStale(path, key string) error {
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if st.Mode().Type() != fs.ModeSocket {
		return errors.New("the file is not a socket; remove it, or set " + key + " to another path")
	}
	c, err := net.DialTimeout("unix", path, dialWait)
	switch {
	case err == nil:
		c.Close()
		return errors.New("a running process listens there; stop it, or set " + key + " to another path")
	case errors.Is(err, syscall.ECONNREFUSED):
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the socket of a process that is gone: %w", err)
		}
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return nil
	default:
		return fmt.Errorf("a socket is there, and whether it is in use cannot be told; stop its process or remove it: %w", err)
	}
}
