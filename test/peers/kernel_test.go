package peers

import (
	"fmt"
	"testing"

	"github.com/cilium/ebpf/asm"
)

// startKernel has the kernel do it: a bridge with a vxlan port, or routes. All of it runs in
// the receiving interface's NAPI.
func startKernel(t testing.TB, d *bed) running {
	d.address(t)
	if d.job.spine {
		d.dut.Sysctl(t, "net/ipv4/ip_forward", "1")
	} else {
		bridge(t, d)
	}
	// A veth has NAPI, which frames that are redirected to it need, only with an
	// XDP program or GRO. A program that passes all costs less.
	pass := d.attachXDP(t, &d.in, always(xdpPass))
	t.Cleanup(func() { pass.Close() })
	d.dut.Do(t, func() { setGRO(t, d.in.name, false) })
	return running{}
}

func bridge(t testing.TB, d *bed) {
	for _, line := range []string{
		"link add br0 type bridge mcast_snooping 0",
		fmt.Sprintf("link add vx type vxlan id %d local %s dstport %d noudpcsum nolearning", vni, localVTEP, vxlanPort),
		"link set vx master br0",
		"link set acc master br0",
		"link set vx up",
		"link set br0 up",
	} {
		ip(t, d.dut, line)
	}
	d.shell(t,
		// Where br_netfilter is loaded it would filter bridged frames.
		"for f in /proc/sys/net/bridge/bridge-nf-call-*; do [ ! -e $f ] || echo 0 > $f; done",
		fmt.Sprintf("bridge fdb append 00:00:00:00:00:00 dev vx dst %s", peerVTEP),
		fmt.Sprintf("bridge fdb add %s dev vx self dst %s", remoteMAC, peerVTEP),
		fmt.Sprintf("bridge fdb add %s dev vx master static", remoteMAC),
		fmt.Sprintf("bridge fdb add %s dev acc master static", hostMAC),
	)
}

// startFloor attaches an XDP program that does what every encapsulation in XDP has to do, and
// nothing else: it puts 50 bytes in front of the frame, which are the same for all but for the
// length, and redirects it.
func startFloor(t testing.TB, d *bed) running {
	tx := newMap(t, devmap())
	t.Cleanup(func() { tx.Close() })
	d.dut.Do(t, func() { // a map's devices are of the namespace in which they are put there
		if err := tx.Put(uint32(0), uint32(d.out.index)); err != nil {
			t.Fatalf("put %s into a map of devices: %v", d.out.name, err)
		}
	})
	_, w := d.job.frames(d, 64)
	const size = (tunnel + 7) &^ 7 // the template ends in the frame's own bytes, which are kept
	insns := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.Mov.Imm(asm.R2, -tunnel),
		asm.FnXdpAdjustHead.Call(),
		asm.JNE.Imm(asm.R0, 0, "drop"),
		asm.LoadMem(asm.R2, asm.R6, 0, asm.Word),
		asm.LoadMem(asm.R3, asm.R6, 4, asm.Word),
		asm.Mov.Reg(asm.R4, asm.R2),
		asm.Add.Imm(asm.R4, size),
		asm.JGT.Reg(asm.R4, asm.R3, "drop"),
	}
	insns = append(insns, writeTemplate(asm.R2, w.frame[:tunnel&^7])...)
	last := w.frame[tunnel&^7 : tunnel]
	insns = append(insns,
		asm.StoreImm(asm.R2, tunnel&^7, int64(last[0])|int64(last[1])<<8, asm.Half),
		asm.Sub.Reg(asm.R3, asm.R2),
		asm.Sub.Imm(asm.R3, ethLen),
		asm.Mov.Reg(asm.R4, asm.R3),
		asm.HostTo(asm.BE, asm.R4, asm.Half),
		asm.StoreMem(asm.R2, ethLen+2, asm.R4, asm.Half),
		asm.Sub.Imm(asm.R3, ipLen),
		asm.HostTo(asm.BE, asm.R3, asm.Half),
		asm.StoreMem(asm.R2, offUDPDest+2, asm.R3, asm.Half),
		asm.LoadMapPtr(asm.R1, tx.FD()),
		asm.Mov.Imm(asm.R2, 0),
		asm.Mov.Imm(asm.R3, xdpDrop),
		asm.FnRedirectMap.Call(),
		asm.Return(),
		asm.Mov.Imm(asm.R0, xdpDrop).WithSymbol("drop"),
		asm.Return(),
	)
	attached := d.attachXDP(t, &d.in, insns)
	t.Cleanup(func() { attached.Close() })
	return running{}
}
