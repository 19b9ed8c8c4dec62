// Command guest is the first process of a virtual machine of the RDMA test: it
// loads modules, gives eth0 an address and an RDMA device (Soft-RoCE) and then
// runs what the host asks for (package proto).
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/test/rdma/proto"
)

func main() {
	err := setUp()
	if err != nil {
		fmt.Println("guest:", err)
	}
	for { // a connection ends when the host hangs up; process 1 may not
		if perr := serve(err); perr != nil {
			fmt.Println("guest:", perr)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func setUp() error {
	for _, m := range []struct{ kind, at string }{{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"tmpfs", "/dev/shm"}, {"tmpfs", "/tmp"}} {
		if err := os.MkdirAll(m.at, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.at, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	if err := loadModules(); err != nil {
		return err
	}
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return err
	}
	settings := map[string]string{}
	for _, word := range strings.Fields(string(line)) {
		key, value, _ := strings.Cut(word, "=")
		settings[key] = value
	}
	// Of the GIDs that an address makes, that of IPv4 is then always number 1.
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/all/disable_ipv6", []byte("1"), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return network(settings[proto.KeyAddr], settings[proto.KeyMTU])
}

func loadModules() error {
	list, err := os.ReadFile(proto.ModuleList)
	if err != nil {
		return err
	}
	for _, name := range strings.Fields(string(list)) {
		f, err := os.Open(filepath.Join(proto.ModuleDir, name))
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		f.Close()
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("load %s: %w", name, err)
		}
	}
	return nil
}

// network brings eth0 up, and an RDMA device on it.
func network(cidr, mtu string) error {
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("lo: %w", err)
	}
	var eth netlink.Link
	for range 100 { // the device appears some time after its driver
		if eth, err = netlink.LinkByName("eth0"); err == nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil {
		return fmt.Errorf("eth0: %w", err)
	}
	size, err := strconv.Atoi(mtu)
	if err != nil {
		return fmt.Errorf("%s: %w", proto.KeyMTU, err)
	}
	addr, err := netlink.ParseAddr(cidr)
	if err != nil {
		return fmt.Errorf("%s: %w", proto.KeyAddr, err)
	}
	for _, do := range []func() error{
		func() error { return netlink.LinkSetMTU(eth, size) },
		func() error { return netlink.AddrAdd(eth, addr) },
		func() error { return netlink.LinkSetUp(eth) },
		func() error { return netlink.RdmaLinkAdd("rxe0", "rxe", "eth0") },
	} {
		if err := do(); err != nil {
			return fmt.Errorf("set eth0 and rxe0 up: %w", err)
		}
	}
	return nil
}

// openPort finds the serial port by its name.
func openPort() (*os.File, error) {
	names, err := filepath.Glob("/sys/class/virtio-ports/*/name")
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		text, err := os.ReadFile(n)
		if err == nil && strings.TrimSpace(string(text)) == proto.Port {
			return os.OpenFile("/dev/"+filepath.Base(filepath.Dir(n)), os.O_RDWR, 0)
		}
	}
	return nil, fmt.Errorf("no serial port is called %s", proto.Port)
}

// serve says whether the guest is ready and answers requests until the host
// hangs up.
func serve(ready error) error {
	port, err := openPort()
	if err != nil {
		return err
	}
	defer port.Close()
	var mu sync.Mutex
	enc := json.NewEncoder(port)
	answer := func(r proto.Reply) {
		mu.Lock()
		defer mu.Unlock()
		if err := enc.Encode(r); err != nil {
			fmt.Println("guest: reply:", err)
		}
	}
	hello := proto.Reply{}
	if ready != nil {
		hello.Err = ready.Error()
	}
	answer(hello)
	for dec := json.NewDecoder(port); ; {
		var req proto.Request
		if err := dec.Decode(&req); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read request: %w", err)
		}
		go func() { answer(perform(&req)) }()
	}
}

func perform(req *proto.Request) proto.Reply {
	if req.Glob != "" {
		return read(req)
	}
	rep := proto.Reply{ID: req.ID}
	ctx, cancel := context.WithTimeout(context.Background(), req.Timeout)
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, req.Argv[0], req.Argv[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		rep.Err = err.Error()
		if ctx.Err() != nil {
			rep.Err = fmt.Sprintf("not over after %v", req.Timeout)
		}
	}
	rep.Output = out.String()
	return rep
}

func read(req *proto.Request) proto.Reply {
	rep := proto.Reply{ID: req.ID, Files: map[string]string{}}
	names, err := filepath.Glob(req.Glob)
	if err != nil {
		rep.Err = err.Error()
	}
	for _, n := range names {
		text, err := os.ReadFile(n)
		if err != nil {
			rep.Err = err.Error()
			break
		}
		rep.Files[filepath.Base(n)] = strings.TrimSpace(string(text))
	}
	return rep
}
