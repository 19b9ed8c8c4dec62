package rdma

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/loomfabric/loom/test/rdma/proto"
)

// Machine describes a virtual machine.
type Machine struct {
	Name   string
	Dir    string // for its sockets, logs and captures
	Kernel *Kernel
	Image  string
	Tap    string // its network device's other end; must exist in the namespace
	MAC    string
	Addr   netip.Prefix
	MTU    int
}

// VM is a machine that runs.
type VM struct {
	Machine
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
	conn net.Conn

	hello chan proto.Reply // the first reply

	mu      sync.Mutex
	next    int
	waiting map[int]chan proto.Reply
	broken  error // why there will be no more replies
}

// Command is the program that is the machine. It is to be started in the
// namespace of the tap.
//
// Offloads are off, in the device and on the tap: frames leave the guest whole,
// with their checksums in them. An unfinished checksum is known to the kernel
// only, and is lost when AF_XDP takes a frame from a tap.
func (m *Machine) Command() *exec.Cmd {
	const off = "csum=off,guest_csum=off,gso=off,guest_tso4=off,guest_tso6=off,guest_ufo=off,guest_ecn=off," +
		"host_tso4=off,host_tso6=off,host_ufo=off,host_ecn=off,mrg_rxbuf=off,ctrl_guest_offloads=off"
	line := []string{
		"console=ttyS0", "quiet", "panic=-1", "reboot=t", "audit=0", "rdinit=/init", "mitigations=off", "nopti", "nokaslr",
		// The machine has no timer to measure its time-stamp counter with; on a
		// busy host that fails, and with it the boot.
		"tsc=reliable", fmt.Sprintf("tsc_early_khz=%d", tscKHz()),
		proto.KeyAddr + "=" + m.Addr.String(), fmt.Sprintf("%s=%d", proto.KeyMTU, m.MTU),
	}
	cmd := exec.Command("qemu-system-x86_64",
		"-M", "microvm,acpi=on,rtc=on", "-accel", "tcg,tb-size=128", "-cpu", "qemu64", "-smp", "1", "-m", "256",
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-kernel", m.Kernel.Vmlinux, "-initrd", m.Image, "-append", strings.Join(line, " "),
		"-chardev", "file,id=log,path="+m.path("console"), "-serial", "chardev:log",
		"-chardev", "socket,id=port,server=on,wait=off,path="+m.path("sock"),
		"-device", "virtio-serial-device", "-device", "virtserialport,chardev=port,name="+proto.Port,
		"-netdev", "tap,id=net,script=no,downscript=no,vnet_hdr=off,ifname="+m.Tap,
		"-device", fmt.Sprintf("virtio-net-device,netdev=net,mac=%s,host_mtu=%d,%s", m.MAC, m.MTU, off),
		// An XDP program on the tap hides frames from tcpdump.
		"-object", "filter-dump,id=dump,netdev=net,file="+m.path("pcap"),
	)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	return cmd
}

func (m *Machine) path(ext string) string { return filepath.Join(m.Dir, m.Name+"."+ext) }

// Capture is the file with all frames that the machine sent and received.
func (m *Machine) Capture() string { return m.path("pcap") }

// tscKHz is the host's time-stamp counter's rate, which QEMU hands through.
func tscKHz() int {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if key, value, _ := strings.Cut(line, ":"); strings.TrimSpace(key) == "cpu MHz" {
			var mhz float64
			if _, err := fmt.Sscanf(strings.TrimSpace(value), "%g", &mhz); err == nil {
				return int(mhz * 1000)
			}
		}
	}
	return 0
}

// Start starts a machine by start, which starts a command in the tap's namespace.
// [VM.Ready] waits for it.
func Start(m Machine, start func(*exec.Cmd) error) (*VM, error) {
	v := &VM{Machine: m, cmd: m.Command(), done: make(chan struct{}), hello: make(chan proto.Reply, 1)}
	v.waiting = map[int]chan proto.Reply{0: v.hello}
	log, err := os.Create(m.path("qemu"))
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own descriptor
	v.cmd.Stdout, v.cmd.Stderr = log, log
	if err := start(v.cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", m.Name, err)
	}
	go func() {
		_ = v.cmd.Wait() // it does not end by itself; how it ended is in its log
		close(v.done)
	}()
	return v, nil
}

// Ready waits until the guest can be asked.
func (v *VM) Ready(ctx context.Context) error {
	for v.conn == nil {
		if conn, err := net.Dial("unix", v.path("sock")); err == nil {
			v.conn = conn
			go v.receive()
			break
		}
		select {
		case <-ctx.Done():
			return v.problem(ctx.Err())
		case <-v.done:
			return v.problem(errors.New("ended"))
		case <-time.After(50 * time.Millisecond):
		}
	}
	if _, err := v.wait(ctx, v.hello); err != nil {
		return v.problem(fmt.Errorf("is not ready: %w", err))
	}
	return nil
}

// problem adds the ends of the machine's logs to an error.
func (v *VM) problem(err error) error {
	text := ""
	for _, ext := range []string{"qemu", "console"} {
		if b, rerr := os.ReadFile(v.path(ext)); rerr == nil {
			text += string(b[max(0, len(b)-1500):])
		}
	}
	return fmt.Errorf("machine %s: %w\n%s", v.Name, err, text)
}

// receive hands replies to those who wait for them.
func (v *VM) receive() {
	dec := json.NewDecoder(v.conn)
	for {
		var rep proto.Reply
		err := dec.Decode(&rep)
		v.mu.Lock()
		if err != nil {
			v.broken = err
			for id, ch := range v.waiting {
				close(ch)
				delete(v.waiting, id)
			}
			v.mu.Unlock()
			return
		}
		if ch := v.waiting[rep.ID]; ch != nil {
			delete(v.waiting, rep.ID)
			ch <- rep // has room
		}
		v.mu.Unlock()
	}
}

// wait waits for a reply.
func (v *VM) wait(ctx context.Context, ch <-chan proto.Reply) (proto.Reply, error) {
	select {
	case rep, ok := <-ch:
		if !ok {
			v.mu.Lock()
			defer v.mu.Unlock()
			return rep, fmt.Errorf("does not answer: %w", v.broken)
		}
		if rep.Err != "" {
			return rep, errors.New(rep.Err)
		}
		return rep, nil
	case <-ctx.Done():
		return proto.Reply{}, ctx.Err()
	}
}

// ask sends a request and returns where the reply will come.
func (v *VM) ask(req proto.Request) (<-chan proto.Reply, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.broken != nil {
		return nil, v.problem(fmt.Errorf("does not answer: %w", v.broken))
	}
	v.next++
	req.ID = v.next
	ch := make(chan proto.Reply, 1)
	v.waiting[req.ID] = ch
	if err := json.NewEncoder(v.conn).Encode(req); err != nil {
		delete(v.waiting, req.ID)
		return nil, v.problem(err)
	}
	return ch, nil
}

// grace is how much longer than its time-out a program's answer may take.
const grace = 10 * time.Second

// Go runs a program in the machine, for at most so long. The result is to be
// called once: it waits for the end and returns what the program printed.
func (v *VM) Go(timeout time.Duration, argv ...string) (result func() (string, error)) {
	reply, err := v.ask(proto.Request{Argv: argv, Timeout: timeout})
	return func() (string, error) {
		if err != nil {
			return "", err
		}
		ctx, cancel := context.WithTimeout(context.Background(), timeout+grace)
		defer cancel()
		rep, err := v.wait(ctx, reply)
		if err != nil {
			err = fmt.Errorf("%s in machine %s: %w", strings.Join(argv, " "), v.Name, err)
		}
		return rep.Output, err
	}
}

// Files reads files of the machine, by base name.
func (v *VM) Files(glob string) (map[string]string, error) {
	reply, err := v.ask(proto.Request{Glob: glob})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	rep, err := v.wait(ctx, reply)
	if err != nil {
		return nil, fmt.Errorf("read %s of machine %s: %w", glob, v.Name, err)
	}
	return rep.Files, nil
}

// Stop ends the machine.
func (v *VM) Stop() {
	_ = v.cmd.Process.Kill() // ErrProcessDone: it has ended
	<-v.done
	if v.conn != nil {
		v.conn.Close()
	}
}
