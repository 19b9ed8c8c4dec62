//go:build vm

package vm

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/test/machine"
)

// configFile is the leaf's configuration in the machine; logFile is the daemon's log.
const (
	configFile = "/etc/loom/leafd.yaml"
	logFile    = "/run/leafd.log"
)

// leafYAML is the leaf's configuration in an XDP mode and a copy mode.
func leafYAML(xdp, copies string) string {
	return fmt.Sprintf(`
name: leaf
vtep: %v
peers: [%v]
workers: 2
polling: interrupt
xdp_mode: %s
copy_mode: %s
telemetry: {per_worker: true}
uplinks:
  - {interface: eth2, link_rate: 1Gbit}
access:
  - {interface: eth0, vni: 100}
  - {interface: eth1, vni: 100}
vnis:
  - {vni: 100, flood: [%v]}
`, vtep, remoteVTEP, xdp, copies, remoteVTEP)
}

// releases are the rows of TestVMLeaf.
var releases = []release{
	// QEMU's default device: everything is offered that the guest can leave to the host.
	{suite: "bookworm", copies: "copy", fast: "the kernel does not say (since Linux 6.3)"},
	// The kernel's driver does zero-copy on queues that it can reset, which takes PCI, on
	// behalf of a device that goes through the kernel's DMA mapping.
	{suite: "sid", copies: "zero-copy", properties: ",iommu_platform=on", fast: "its driver has refused all frames from XDP"},
}

// TestVMLeaf: a leaf on virtio-net, under kernels that Debian ships. In each release the
// steps follow each other in one machine.
func TestVMLeaf(t *testing.T) {
	need(t)
	for _, r := range releases {
		t.Run(r.suite, func(t *testing.T) {
			s := newSite(t, r, "", func(i *machine.Image) {
				i.File(configFile, []byte(leafYAML("native", strings.ReplaceAll(r.copies, "-", ""))), 0o644)
			})
			s.steps(t, "tail -n 30 "+logFile+"; dmesg | tail -n 10", []step{
				{"filter", s.filters},
				{"start", func(t *testing.T) { s.starts(t, "native", r.copies) }},
				{"promiscuity", s.hearsAll},
				{"workers", s.workers},
				{"TCP", s.carries},
				{"kill", s.killed},
				{"restart", func(t *testing.T) { s.starts(t, "native", r.copies); s.hearsAll(t); s.carries(t) }},
				{"replug", s.replugged},
				{"fast path", func(t *testing.T) { s.fast(t, r) }},
				{"generic", s.generic},
			})
		})
	}
}

// strangers are addresses that the leaf's network card has not been told of.
const strangers, perStranger = 8, 9

// flood sends frames to addresses of nobody and returns how many of them the other host
// gets.
func (s *site) flood() int {
	s.t.Helper()
	from, to := s.openWire("h0", testType), s.openWire("h1", testType)
	for i := range strangers * perStranger {
		from.send(frame(overlay.MAC{2, 9, 0, 0, 0, byte(i % strangers)}, s.mac("h0"), testType, make([]byte, 50)))
	}
	return len(to.received())
}

// filters: the network card keeps frames for addresses that it was not told of, so that
// the step about promiscuity proves something. And without leafd the attack of the step
// about kill -9 reaches the kernel.
func (s *site) filters(t *testing.T) {
	if s.promiscuous() {
		t.Error("eth0 is promiscuous before leafd runs")
	}
	const received = "cat /sys/class/net/eth0/statistics/rx_packets"
	before := s.number(received)
	s.flood()
	if n := s.number(received) - before; n > strangers {
		t.Errorf("of %d frames to strangers the machine received %d without being promiscuous", strangers*perStranger, n)
	}
	if n, answers := s.attack(); n == 0 || answers == 0 {
		t.Errorf("without leafd the kernel received %d IP packets and sent %d answers to ARP: the attack proves nothing", n, answers)
	}
}

// promiscuous reports whether the card hands over frames to all addresses (IFF_PROMISC).
func (s *site) promiscuous() bool {
	s.t.Helper()
	return s.number("cat /sys/class/net/eth0/flags")&0x100 != 0
}

// starts starts leafd, which opens its ports in these modes.
func (s *site) starts(t *testing.T, xdp, copies string) {
	s.leafd = s.vm.Go(time.Hour, "/usr/bin/bash", "-c", "mkdir -p /run/loom; exec /usr/bin/leafd run -c "+configFile+" >>"+logFile+" 2>&1")
	s.eventually(func() string {
		if out, err := s.try("loomctl ports"); err != nil || strings.Count(out, xdp+"/"+strings.ReplaceAll(copies, "-", "")) != 3 && strings.Count(out, xdp+"/"+copies) != 3 {
			return fmt.Sprintf("not all ports are open as %s/%s:\n%s%v", xdp, copies, out, err)
		}
		if s.get("/readyz") == "" {
			return "leafd is not ready"
		}
		return ""
	})
	if !s.promiscuous() {
		t.Error("access port eth0 is not promiscuous")
	}
}

// hearsAll: frames to all addresses arrive.
func (s *site) hearsAll(t *testing.T) {
	if n := s.flood(); n != strangers*perStranger {
		t.Errorf("of %d frames to strangers %d came out of the other access port", strangers*perStranger, n)
	}
}

// workers: flows spread over both queues, and each worker has its own.
func (s *site) workers(t *testing.T) {
	from := s.openWire("h0", overlay.EtherTypeIPv4)
	for i := range 256 { // the tap chooses the queue by the flow
		from.send(datagram(s.mac("h0"), overlay.MAC{2, 9, 0, 0, 0, 1}, hostAddr["h0"], hostAddr["h1"], uint16(i)))
	}
	for _, w := range []string{`worker="0"`, `worker="1"`} {
		s.eventually(func() string {
			if n := s.metric("loom_port_received_frames_total", `port="eth0"`, w); n < 64 {
				return fmt.Sprintf("%s received %v of 256 frames by eth0", w, n)
			}
			return ""
		})
	}
	if n := s.metric("loom_port_metadata_missing_frames_total"); n != 0 {
		t.Errorf("%v frames came without the classifier's metadata", n)
	}
}

// carries: hosts with the kernel's default offloads talk TCP, within the leaf and through
// the tunnel, both ways. No frame is lost track of.
func (s *site) carries(t *testing.T) {
	for _, pair := range [][2]string{{"h0", "h1"}, {"h0", "remote"}, {"remote", "h1"}, {"h1", "h0"}} {
		s.transfer(pair[0], pair[1], 1<<20)
	}
	if stats := s.get("/debug/stats"); strings.Count(stats, `"ok":true`) < 2 || strings.Contains(stats, `"ok":false`) {
		t.Errorf("the workers' accounts do not balance: %s", stats)
	}
	t.Logf("checksums finished: %v on eth0, %v on eth1", s.metric("loom_port_checksums_finished_frames_total", `port="eth0"`),
		s.metric("loom_port_checksums_finished_frames_total", `port="eth1"`))
}

// killed: after kill -9 nothing of a host reaches the leaf's kernel, and the card is as it
// was.
func (s *site) killed(t *testing.T) {
	s.run("pkill -KILL -x leafd")
	if _, err := s.leafd(); err == nil {
		t.Error("leafd ended well by SIGKILL")
	}
	if s.promiscuous() {
		t.Error("eth0 is promiscuous without leafd")
	}
	if packets, answers := s.attack(); packets != 0 || answers != 0 {
		t.Errorf("through a closed port the kernel received %d IP packets and answered %d ARP requests", packets, answers)
	}
}

// attack sends what a leaf's kernel would take: datagrams to its addresses and to be
// forwarded, and ARP. It returns how many IP packets the kernel received, and how many
// answers to ARP came.
func (s *site) attack() (packets, answers int) {
	s.t.Helper()
	const received = `while read -r tag _ _ n _; do [[ $tag == Ip: && $n =~ ^[0-9]+$ ]] && echo $n; done </proc/net/snmp || true`
	const tunnelled = "cat /sys/class/net/eth2/statistics/rx_packets"
	before, far := s.number(received), s.number(tunnelled)
	arp := s.openWire("h0", overlay.EtherTypeARP)
	from, port := s.mac("h0"), overlay.MAC{2, 0x4c, 0, 0, 0, 0}
	for i := range 10 {
		for _, to := range []netip.Addr{vtep, leafLink, link, remoteVTEP} {
			arp.send(datagram(from, port, hostAddr["h0"], to, uint16(i)))
		}
		arp.send(who(from, hostAddr["h0"], leafLink))
	}
	answers = len(arp.received())
	packets = s.number(received) - before
	if far = s.number(tunnelled) - far; far > 0 {
		s.t.Logf("%d frames came by eth2, which the attack does not send there", far)
	}
	return packets, answers
}

// replugged: a network card is taken out while frames are under way, and put in again.
// The port closes, its frames come back, and it opens; again and again.
func (s *site) replugged(t *testing.T) {
	const card = "d=$(basename $(readlink -f /sys/class/net/eth1/device/..)); cd /sys/bus/pci/drivers/virtio-pci; echo $d >unbind; echo $d"
	stop := make(chan struct{})
	defer func() { close(stop) }()
	for _, host := range []string{"h0", "h1"} {
		w, f := s.openWire(host, testType), frame(overlay.MAC{2, 9, 0, 0, 0, 1}, s.mac(host), testType, make([]byte, 1000))
		go func() {
			for tick := time.NewTicker(time.Millisecond); ; <-tick.C {
				select {
				case <-stop:
					return
				default:
					_ = unix.Sendto(w.fd, f, 0, &w.to) // the tap's queue may be full
				}
			}
		}()
	}
	for range 5 {
		d := strings.TrimSpace(s.run(card))
		s.eventually(func() string { return s.port("eth1", "closed") })
		s.run("echo " + d + " >/sys/bus/pci/drivers/virtio-pci/bind; until [ -e /sys/class/net/eth1 ]; do sleep 0.1; done; ip link set eth1 up")
		s.eventually(func() string { return s.port("eth1", "up") })
	}
	s.carries(t)
}

// port checks that a port is in a state.
func (s *site) port(name, state string) string {
	s.t.Helper()
	out := s.run("loomctl ports")
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) > 2 && f[0] == name {
			if f[2] == state {
				return ""
			}
		}
	}
	return fmt.Sprintf("%s is not %s:\n%s", name, state, out)
}

// fast: with fast_path: auto a leaf starts and carries frames under each kernel. Where the kernel can,
// XDP forwards; where it cannot, leafd says why.
func (s *site) fast(t *testing.T, r release) {
	s.run("pkill -TERM -x leafd")
	if out, err := s.leafd(); err != nil {
		t.Errorf("leafd ended by SIGTERM: %v %s", err, out)
	}
	if err := s.vm.Put(configFile, leafYAML("native", strings.ReplaceAll(r.copies, "-", ""))+"fast_path: auto\n"); err != nil {
		t.Fatal(err)
	}
	s.starts(t, "native", r.copies)
	s.carries(t)
	out := s.run("loomctl fast")
	t.Logf("%s", out)
	if !strings.Contains(out, r.fast) {
		t.Errorf("loomctl fast does not say %q", r.fast)
	}
}

// generic: in generic mode the driver leaves its offloads on, so that checksums come in
// unfinished.
func (s *site) generic(t *testing.T) {
	s.run("pkill -TERM -x leafd")
	if out, err := s.leafd(); err != nil {
		t.Errorf("leafd ended by SIGTERM: %v %s", err, out)
	}
	if err := s.vm.Put(configFile, leafYAML("generic", "copy")); err != nil {
		t.Fatal(err)
	}
	s.starts(t, "generic", "copy")
	s.carries(t)
	if n := s.metric("loom_port_checksums_finished_frames_total", `port="eth0"`); n < 100 {
		t.Errorf("%v checksums of eth0's frames were finished: the hosts' offloads are off, and TCP proves nothing", n)
	}
}

// datagram makes a UDP datagram over IPv4 in an Ethernet frame.
func datagram(src, dst overlay.MAC, from, to netip.Addr, port uint16) []byte {
	ip := make([]byte, overlay.IPv4Len+overlay.UDPLen+20)
	ip[0], ip[8], ip[9] = 0x45, 64, overlay.ProtoUDP
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	copy(ip[12:], from.AsSlice())
	copy(ip[16:], to.AsSlice())
	binary.BigEndian.PutUint16(ip[10:], ^sum(ip[:overlay.IPv4Len]))
	binary.BigEndian.PutUint16(ip[20:], 40000+port)
	binary.BigEndian.PutUint16(ip[22:], 3784)
	binary.BigEndian.PutUint16(ip[24:], uint16(len(ip)-overlay.IPv4Len))
	return frame(dst, src, overlay.EtherTypeIPv4, ip)
}

// sum is the Internet checksum's sum (RFC 1071), folded.
func sum(b []byte) uint16 {
	var n uint32
	for i := 0; i < len(b); i += 2 {
		n += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for n>>16 != 0 {
		n = n&0xffff + n>>16
	}
	return uint16(n)
}

// who makes an ARP request.
func who(src overlay.MAC, from, to netip.Addr) []byte {
	b := append([]byte{0, 1, 8, 0, 6, 4, 0, 1}, src[:]...)
	b = append(append(b, from.AsSlice()...), make([]byte, 6)...)
	return frame(overlay.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, src, overlay.EtherTypeARP, append(b, to.AsSlice()...))
}
