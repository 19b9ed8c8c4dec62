package peers

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// startOVS starts Open vSwitch's user-space datapath on AF_XDP ports, with its
// own database and sockets, apart from a system's Open vSwitch.
func startOVS(t testing.TB, d *bed) running {
	var env []string
	for _, v := range []string{"OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"} {
		env = append(env, v+"="+d.dir)
	}
	vsctl := func(line string) {
		t.Helper()
		command(t, env, append([]string{"ovs-vsctl", "--db=unix:" + d.file("db.sock")}, strings.Fields(line)...)...)
	}
	command(t, env, "ovsdb-tool", "create", d.file("conf.db"), "/usr/share/openvswitch/vswitch.ovsschema")
	d.daemon(t, env, "ovsdb-server", d.file("conf.db"), "--remote=punix:"+d.file("db.sock"), "--unixctl="+d.file("ovsdb.ctl"))
	ready(t, "socket of ovsdb-server", 5*time.Second, func() bool { _, err := os.Stat(d.file("db.sock")); return err == nil })
	vsctl(fmt.Sprintf("--no-wait init -- set Open_vSwitch . other_config:pmd-cpu-mask=%d", 1<<dutCore))
	pid := d.daemon(t, env, "ovs-vswitchd", "unix:"+d.file("db.sock"), "--unixctl="+d.file("vswitchd.ctl"), "--pidfile="+d.file("vswitchd.pid"))
	for _, line := range []string{
		// Tunnels end at the MAC address of the bridge.
		fmt.Sprintf("add-br br-phy -- set bridge br-phy datapath_type=netdev other-config:hwaddr=%q", d.uplink().mac),
		"add-port br-phy upl -- set interface upl type=afxdp options:n_rxq=1 options:xdp-mode=native",
		"add-br br-int -- set bridge br-int datapath_type=netdev",
		"add-port br-int acc -- set interface acc type=afxdp options:n_rxq=1 options:xdp-mode=native ofport_request=1",
		fmt.Sprintf("add-port br-int vx -- set interface vx type=vxlan options:remote_ip=%s options:key=%d options:dst_port=%d ofport_request=2", peerVTEP, vni, vxlanPort),
	} {
		vsctl("--timeout=20 " + line)
	}
	ip(t, d.dut, "addr add "+localVTEP+"/24 dev br-phy")
	ip(t, d.dut, "link set br-phy up")
	for _, flow := range []string{"in_port=1,actions=output:2", "in_port=2,actions=output:1"} {
		command(t, env, "ovs-ofctl", "add-flow", "unix:"+d.file("br-int.mgmt"), flow)
	}
	command(t, env, "ovs-appctl", "-t", d.file("vswitchd.ctl"), "tnl/arp/set", "br-phy", peerVTEP, d.beyond().String())
	return running{pids: []int{pid}}
}
