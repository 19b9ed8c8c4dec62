package netns

import (
	"fmt"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/testenv"
)

// says waits until a daemon's log has the words in one line, and checks that no other
// line has them.
func (d *daemon) says(words string) {
	d.t.Helper()
	eventually(d.t, 10*time.Second, func() string {
		if n := len(lines(d.whole(), words)); n != 1 {
			return fmt.Sprintf("%d lines of the log of %s have %q, want 1:\n%s", n, d.name, words, d.tail())
		}
		return ""
	})
}

// TestPortsAreCheckedAtRunTime: an access port appears under a running leafd, and an
// uplink returns, that the start would have refused or warned of. The leaf says so, and
// goes on when they are as they should be.
func TestPortsAreCheckedAtRunTime(t *testing.T) {
	t.Parallel() // it waits for checks that come every 5 seconds
	f := up(t, "pair.yaml")
	h1, d := f.host("h1"), f.daemons["L0"]
	again := func(queues, mtu int) {
		t.Helper()
		f.ns["L0"].DeleteLink(t, h1.Port)
		d.open(h1.Port, false)
		testenv.VethPair(t, f.ns["L0"], h1.Port, f.ns["h1"], "eth0", testenv.VethOptions{Queues: queues, MTU: mtu})
		setIdentity(t, f.ns["h1"], h1.MAC, h1.Addr.String())
	}

	again(2, 1500) // more queues than workers
	d.says(fmt.Sprintf(`cannot open port; trying again" node=L0 error="port %s: interface %[1]s has 2 receive queues for 1 workers: what arrives on the others would not be forwarded; fix: ethtool -L %[1]s combined 1`, h1.Port))
	time.Sleep(2 * time.Second) // it is tried again, in silence
	d.open(h1.Port, false)
	d.says("cannot open port; trying again")

	again(1, 3000) // frames for which the buffers were not made
	d.open(h1.Port, true)
	d.says(fmt.Sprintf(`level=ERROR msg="interface %s has MTU 3000, and a packet buffer holds 1774"`, h1.Port))
	if n := d.metric("loom_check_findings", fmt.Sprintf(`port="%s",severity="error"`, h1.Port)); n != 1 {
		t.Errorf("loom_check_findings of %s is %d", h1.Port, n)
	}

	again(1, 1500)
	addAddr(t, f.ns["L0"], h1.Port, "192.0.2.1/24")
	d.open(h1.Port, true)
	d.says("no longer so: interface " + h1.Port + " has MTU 3000")
	d.says(fmt.Sprintf(`level=WARN msg="access port %s has the address 192.0.2.1/24`, h1.Port))
	transfer(t, f.ns["h1"], f.ns["h3"], f.addr("h3"), 256<<10)

	// Somebody takes the program off a closed port: the leaf puts it back.
	f.takeOff("L0", h1.Port)
	eventually(t, 5*time.Second, func() string {
		if n := len(lines(d.whole(), `port closed" node=L0 error="port `+h1.Port+": its XDP program was taken off")); n != 1 || xdp(t, f.ns["L0"], h1.Port) == 0 {
			return "no program is on " + h1.Port + "\n" + d.tail()
		}
		return ""
	})
	d.open(h1.Port, true)
	transfer(t, f.ns["h1"], f.ns["h3"], f.addr("h3"), 256<<10)
}
