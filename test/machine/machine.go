// Package machine runs small virtual machines with kernels of Debian for tests: it
// downloads what they boot, starts QEMU on taps, and commands the guest. Only tests
// import it.
package machine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/loomfabric/loom/test/machine/proto"
)

// Machine describes a virtual machine.
type Machine struct {
	Name   string
	Dir    string // for its sockets, logs and captures
	Kernel *Kernel
	Image  string
	Init   string // first process; "": the guest program
	CPUs   int    // 0: 1
	Memory int    // MiB; 0: 256
	NICs   []NIC
}

// NIC is a virtio-net device of a machine, and the tap behind it. The guest calls the
// first eth0.
type NIC struct {
	MAC string
	MTU int
	Tap *Tap
	// Properties are those of the device that QEMU shall not have its default for,
	// beginning with a comma.
	Properties string
}

// NoOffloads are the properties of a device which leaves nothing to the other side: frames
// are whole, with their checksums in them.
const NoOffloads = ",csum=off,guest_csum=off,gso=off,guest_tso4=off,guest_tso6=off,guest_ufo=off,guest_ecn=off" +
	",host_tso4=off,host_tso6=off,host_ufo=off,host_ecn=off,mrg_rxbuf=off,ctrl_guest_offloads=off"

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

// Command is the program that is the machine.
func (m *Machine) Command() *exec.Cmd {
	init := m.Init
	if init == "" {
		init = proto.Program
	}
	line := []string{
		"console=ttyS0", "panic=-1", "reboot=t", "audit=0", "rdinit=" + init, "mitigations=off", "nopti", "nokaslr",
		// The machine has no timer to measure its time-stamp counter with; on a
		// busy host that fails, and with it the boot.
		"tsc=reliable", fmt.Sprintf("tsc_early_khz=%d", tscKHz()),
		"net.ifnames=0",
	}
	cmd := exec.Command("qemu-system-x86_64",
		"-M", "microvm,acpi=on,pcie=on,rtc=on", "-global", "virtio-mmio.force-legacy=false",
		"-accel", "tcg,tb-size=128", "-cpu", "qemu64", "-smp", strconv.Itoa(max(m.CPUs, 1)), "-m", strconv.Itoa(cmp.Or(m.Memory, 256)),
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-kernel", m.Kernel.Vmlinux, "-initrd", m.Image, "-append", strings.Join(line, " "),
		"-chardev", "file,id=log,path="+m.path("console"), "-serial", "chardev:log",
		"-chardev", "socket,id=port,server=on,wait=off,path="+m.path("sock"),
		"-device", "virtio-serial-device", "-device", "virtserialport,chardev=port,name="+proto.Port,
	)
	for i, n := range m.NICs {
		var fds []string
		for _, q := range n.Tap.queues {
			fds = append(fds, strconv.Itoa(firstExtra+len(cmd.ExtraFiles)))
			cmd.ExtraFiles = append(cmd.ExtraFiles, q)
		}
		net, mq := fmt.Sprintf("net%d", i), "off"
		if len(fds) > 1 {
			mq = "on"
		}
		cmd.Args = append(cmd.Args,
			"-netdev", "tap,id="+net+",fds="+strings.Join(fds, ":"),
			"-device", fmt.Sprintf("virtio-net-pci,disable-legacy=on,romfile=,netdev=%s,mac=%s,host_mtu=%d,mq=%s%s", net, n.MAC, n.MTU, mq, n.Properties))
		if len(fds) == 1 { // QEMU's filters know one queue. An XDP program on the tap hides frames from tcpdump
			cmd.Args = append(cmd.Args, "-object", fmt.Sprintf("filter-dump,id=dump%d,netdev=%s,file=%s", i, net, m.Capture(i)))
		}
	}
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	return cmd
}

// firstExtra is the number under which a program finds the first of a command's
// ExtraFiles.
const firstExtra = 3

func (m *Machine) path(ext string) string { return filepath.Join(m.Dir, m.Name+"."+ext) }

// Capture is the file with all frames that the machine sent and received by a device of
// one queue.
func (m *Machine) Capture(nic int) string { return m.path(fmt.Sprintf("eth%d.pcap", nic)) }

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

// Start starts a machine, which takes over its taps. [VM.Ready] waits for it.
func Start(m Machine) (*VM, error) { return start(m, m.Command()) }

// start starts cmd as a machine.
func start(m Machine, cmd *exec.Cmd) (*VM, error) {
	v := &VM{Machine: m, cmd: cmd, done: make(chan struct{}), hello: make(chan proto.Reply, 1)}
	v.waiting = map[int]chan proto.Reply{0: v.hello}
	log, err := os.Create(m.path("qemu"))
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own descriptor
	v.cmd.Stdout, v.cmd.Stderr = log, log
	if err := v.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", m.Name, err)
	}
	for _, n := range m.NICs {
		if err := n.Tap.close(); err != nil { // QEMU has them; a tap goes when the last one closes
			return nil, fmt.Errorf("start %s: %w", m.Name, err)
		}
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
	rep, err := v.do(proto.Request{Glob: glob})
	if err != nil {
		return nil, fmt.Errorf("read %s of machine %s: %w", glob, v.Name, err)
	}
	return rep.Files, nil
}

// Put writes a file of the machine.
func (v *VM) Put(name, text string) error {
	if _, err := v.do(proto.Request{Put: name, Text: text}); err != nil {
		return fmt.Errorf("write %s of machine %s: %w", name, v.Name, err)
	}
	return nil
}

// do waits for the answer to a request that takes no time.
func (v *VM) do(req proto.Request) (proto.Reply, error) {
	reply, err := v.ask(req)
	if err != nil {
		return proto.Reply{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	return v.wait(ctx, reply)
}

// Stop ends the machine.
func (v *VM) Stop() {
	_ = v.cmd.Process.Kill() // ErrProcessDone: it has ended
	<-v.done
	if v.conn != nil {
		v.conn.Close()
	}
}
