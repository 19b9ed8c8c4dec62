package httpd

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// socketPath is a path in a directory of its own, short enough for a socket.
func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "loom")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "x.sock")
}

func TestListenOff(t *testing.T) {
	for _, address := range []string{"", "off"} {
		if l, err := Listen(address, "metrics", "telemetry.listen"); l != nil || err != nil {
			t.Errorf("Listen(%q) = %v, %v; want nil, nil", address, l, err)
		}
	}
}

func TestListenUnix(t *testing.T) {
	path := socketPath(t)
	l, err := Listen("unix:"+path, "metrics", "telemetry.listen")
	if err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := st.Mode(); got != fs.ModeSocket|0o660 {
		t.Errorf("the socket's mode is %v, want a socket of mode 0660", got)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the socket outlives its listener: %v", err)
	}
}

func TestListenReplacesTheSocketOfTheDead(t *testing.T) {
	path := socketPath(t)
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false) // as when a process is killed
	dead.Close()
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("nothing is left behind, so there is nothing to test: %v", err)
	}
	l, err := Listen("unix:"+path, "metrics", "telemetry.listen")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatalf("the new socket does not answer: %v", err)
	}
	c.Close()
}

// What is in use, and what is no socket, stays as it is.
func TestListenRefuses(t *testing.T) {
	tests := []struct {
		name    string
		prepare func(t *testing.T) (address string)
		want    string
	}{
		{"socket in use", func(t *testing.T) string {
			path := socketPath(t)
			l, err := Listen("unix:"+path, "metrics", "telemetry.listen")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if c, err := net.Dial("unix", path); err != nil {
					t.Errorf("the socket in use was taken away: %v", err)
				} else {
					c.Close()
				}
				l.Close()
			})
			return "unix:" + path
		}, "a running process listens there; stop it"},
		{"socket whose process is too busy to accept", func(t *testing.T) string { return "unix:" + busySocket(t) },
			"whether it is in use cannot be told"},
		{"file", func(t *testing.T) string {
			path := socketPath(t)
			if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if b, err := os.ReadFile(path); err != nil || string(b) != "precious" {
					t.Errorf("the file is now %q, %v", b, err)
				}
			})
			return "unix:" + path
		}, "not a socket; remove it"},
		{"no directory", func(t *testing.T) string { return "unix:" + socketPath(t) + "/none/x.sock" }, "create the directory"},
		{"path too long", func(t *testing.T) string { return "unix:" + socketPath(t) + strings.Repeat("x", 108) }, "107 bytes"},
		{"port in use", func(t *testing.T) string {
			l, err := Listen("127.0.0.1:0", "metrics", "telemetry.listen")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
			return l.Addr().String()
		}, "another process has the port; stop it"},
		{"address of somebody else", func(*testing.T) string { return "192.0.2.1:9464" }, "no interface has this address"},
		{"no address", func(*testing.T) string { return "here" }, "set telemetry.listen to HOST:PORT"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			address := tt.prepare(t)
			l, err := Listen(address, "metrics", "telemetry.listen")
			if err == nil {
				l.Close()
				t.Fatalf("Listen(%q) works", address)
			}
			if !strings.Contains(err.Error(), address) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("the error does not name %s and say %q: %v", address, tt.want, err)
			}
		})
	}
}

// busySocket listens, but has no room for another connection.
func busySocket(t *testing.T) (path string) {
	t.Helper()
	path = socketPath(t)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		if _, err := os.Stat(path); err != nil {
			t.Errorf("the busy process has lost its socket: %v", err)
		}
	})
	return path
}
