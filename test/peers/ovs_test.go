package peers

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// startOVS starts Open vSwitch's user-space datapath on AF_XDP ports, with its
// own database and sockets, apart from a system's Open vSwitch.
func startOVS(b *testing.B, d *bed) (pids []int) {
	var env []string
	for _, v := range []string{"OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"} {
		env = append(env, v+"="+d.dir)
	}
	at := func(file string) string { return filepath.Join(d.dir, file) }
	vsctl := func(line string) {
		b.Helper()
		command(b, env, append([]string{"ovs-vsctl", "--db=unix:" + at("db.sock")}, strings.Fields(line)...)...)
	}
	command(b, env, "ovsdb-tool", "create", at("conf.db"), "/usr/share/openvswitch/vswitch.ovsschema")
	d.daemon(b, env, "ovsdb-server", at("conf.db"), "--remote=punix:"+at("db.sock"), "--unixctl="+at("ovsdb.ctl"))
	ready(b, "socket of ovsdb-server", 5*time.Second, func() bool { _, err := os.Stat(at("db.sock")); return err == nil })
	vsctl("--no-wait init -- set Open_vSwitch . other_config:pmd-cpu-mask=2")
	pid := d.daemon(b, env, "ovs-vswitchd", "unix:"+at("db.sock"), "--unixctl="+at("vswitchd.ctl"), "--pidfile="+at("vswitchd.pid"))
	for _, line := range []string{
		"add-br br-phy -- set bridge br-phy datapath_type=netdev",
		"add-port br-phy upl -- set interface upl type=afxdp options:n_rxq=1 options:xdp-mode=native",
		"add-br br-int -- set bridge br-int datapath_type=netdev",
		"add-port br-int acc -- set interface acc type=afxdp options:n_rxq=1 options:xdp-mode=native ofport_request=1",
		fmt.Sprintf("add-port br-int vx -- set interface vx type=vxlan options:remote_ip=%s options:key=%d options:dst_port=%d ofport_request=2", peerVTEP, vni, vxlanPort),
	} {
		vsctl("--timeout=20 " + line)
	}
	ip(b, d.dut, "addr add "+localVTEP+"/24 dev br-phy")
	ip(b, d.dut, "link set br-phy up")
	command(b, env, "ovs-ofctl", "add-flow", "unix:"+at("br-int.mgmt"), "in_port=1,actions=output:2")
	command(b, env, "ovs-appctl", "-t", at("vswitchd.ctl"), "tnl/arp/set", "br-phy", peerVTEP, d.endMAC)
	return []int{pid}
}
