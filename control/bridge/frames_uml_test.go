//go:build uml

package bridge

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/overlay"
)

// show reads what `bridge -j` says.
func (r *vlanRig) show(t testing.TB, into any, what ...string) {
	t.Helper()
	r.ns.Do(t, func() {
		out, err := exec.Command("bridge", append([]string{"-j"}, what...)...).Output()
		if err == nil && len(out) > 0 {
			err = json.Unmarshal(out, into)
		}
		if err != nil {
			t.Fatalf("bridge %v: %v: %s", what, err, out)
		}
	})
}

// run runs commands, with as few processes as can be: they are slow there.
func (r *vlanRig) run(t testing.TB, commands ...string) {
	t.Helper()
	if err := r.batch(t, commands); err != nil {
		t.Fatal(err)
	}
}

// try runs commands that may fail.
func (r *vlanRig) try(t testing.TB, commands ...string) {
	t.Helper()
	_ = r.batch(t, commands, "-force")
}

func (r *vlanRig) batch(t testing.TB, commands []string, options ...string) (err error) {
	t.Helper()
	for len(commands) > 0 {
		program, _, _ := strings.Cut(commands[0], " ")
		var lines strings.Builder
		n := 0
		for n < len(commands) && strings.HasPrefix(commands[n], program+" ") {
			fmt.Fprintln(&lines, strings.TrimPrefix(commands[n], program+" "))
			n++
		}
		r.ns.Do(t, func() {
			c := exec.Command(program, append(options, "-batch", "-")...)
			c.Stdin = strings.NewReader(lines.String())
			if out, e := c.CombinedOutput(); e != nil {
				err = errors.Join(err, fmt.Errorf("%s, of\n%s: %w: %s", program, &lines, e, out))
			}
		})
		commands = commands[n:]
	}
	return err
}

// ethTest is the EtherType of the tests' frames, IEEE 802's for experiments.
const ethTest = 0x88b5

// packetSocket opens a socket for the frames of an interface.
func (r *vlanRig) packetSocket(t testing.TB, name string) (fd int) {
	t.Helper()
	ifindex := r.ns.Link(t, name).Attrs().Index
	r.ns.Do(t, func() {
		proto := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
		var err error
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(proto)); err != nil {
			t.Fatal(err)
		}
		if err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: proto, Ifindex: ifindex}); err != nil {
			t.Fatal(err)
		}
	})
	return fd
}

// send sends a frame by an interface; tag 0: without one.
func (r *vlanRig) send(t testing.TB, name string, tag uint16, src, dst overlay.MAC) {
	t.Helper()
	fd := r.packetSocket(t, name)
	defer unix.Close(fd)
	frame := append(append([]byte(nil), dst[:]...), src[:]...)
	if tag != 0 {
		frame = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(frame, unix.ETH_P_8021Q), tag)
	}
	frame = append(binary.BigEndian.AppendUint16(frame, ethTest), make([]byte, 46)...)
	if _, err := unix.Write(fd, frame); err != nil {
		t.Fatalf("send by %s: %v", name, err)
	}
}

// cross sends a frame from one host to another, and returns the tag with which it arrives.
func (r *vlanRig) cross(t testing.TB, from string, tag uint16, src overlay.MAC, to string, dst overlay.MAC) uint16 {
	t.Helper()
	fd := r.packetSocket(t, to)
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}); err != nil {
		t.Fatal(err)
	}
	r.send(t, from, tag, src, dst)
	frame, control := make([]byte, 2048), make([]byte, 256)
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
		n, c, _, _, err := unix.Recvmsg(fd, frame, control, 0)
		if err != nil || n < 14 || overlay.MAC(frame[:6]) != dst || overlay.MAC(frame[6:12]) != src {
			continue
		}
		list, err := unix.ParseSocketControlMessage(control[:c])
		if err != nil || len(list) != 1 || len(list[0].Data) < 20 {
			t.Fatalf("the frame comes with %v, %v", list, err)
		}
		// struct tpacket_auxdata: status, lengths, offsets, tag. The kernel takes a tag
		// out of the frame.
		if b := list[0].Data; binary.NativeEndian.Uint32(b)&unix.TP_STATUS_VLAN_VALID != 0 {
			return binary.NativeEndian.Uint16(b[16:]) & 0xfff
		}
		if binary.BigEndian.Uint16(frame[12:]) != ethTest {
			t.Fatalf("the frame is % x", frame[:n])
		}
		return 0
	}
	t.Fatalf("no frame from %s has come to %s", from, to)
	return 0
}
