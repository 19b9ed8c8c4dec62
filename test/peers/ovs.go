package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// ovsDevice is Open vSwitch's user-space datapath on AF_XDP ports, with its
// own database and sockets, apart from a system's Open vSwitch.
type ovsDevice struct {
	db, vswitchd *daemon
	dir          string
	env          []string
}

func (*ovsDevice) name() string         { return "Open vSwitch" }
func (*ovsDevice) softirqReceive() bool { return true }

func (o *ovsDevice) start(b *bench) error {
	o.dir = filepath.Join(b.dir, "ovs")
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		return err
	}
	o.env = nil
	for _, v := range []string{"OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"} {
		o.env = append(o.env, v+"="+o.dir)
	}
	dbFile, sock := filepath.Join(o.dir, "conf.db"), filepath.Join(o.dir, "db.sock")
	if err := command("ovsdb-tool", "create", dbFile, "/usr/share/openvswitch/vswitch.ovsschema"); err != nil {
		return err
	}
	var err error
	if o.db, err = startDaemon(b, "ovsdb-server.log", o.env, "ovsdb-server", dbFile, "--remote=punix:"+sock,
		"--unixctl="+filepath.Join(o.dir, "ovsdb.ctl")); err != nil {
		return err
	}
	if err := ready("socket of ovsdb-server", 5*time.Second, func() bool { _, err := os.Stat(sock); return err == nil }); err != nil {
		return err
	}
	if err := o.vsctl("--no-wait init -- set Open_vSwitch . other_config:pmd-cpu-mask=2"); err != nil {
		return err
	}
	if o.vswitchd, err = startDaemon(b, "ovs-vswitchd.log", o.env, "ovs-vswitchd", "unix:"+sock,
		"--unixctl="+filepath.Join(o.dir, "vswitchd.ctl"), "--pidfile="+filepath.Join(o.dir, "vswitchd.pid")); err != nil {
		return err
	}
	if err := o.configure(b); err != nil {
		return fmt.Errorf("%w; ovs-vswitchd says: %s", err, o.vswitchd.tail())
	}
	return nil
}

func (o *ovsDevice) configure(b *bench) error {
	for _, line := range []string{
		"add-br br-phy -- set bridge br-phy datapath_type=netdev",
		"add-port br-phy upl -- set interface upl type=afxdp options:n_rxq=1 options:xdp-mode=native",
		"add-br br-int -- set bridge br-int datapath_type=netdev",
		"add-port br-int acc -- set interface acc type=afxdp options:n_rxq=1 options:xdp-mode=native ofport_request=1",
		fmt.Sprintf("add-port br-int vx -- set interface vx type=vxlan options:remote_ip=%s options:key=%d options:dst_port=%d ofport_request=2", peerVTEP, vni, vxlanPort),
	} {
		if err := o.vsctl("--timeout=20 " + line); err != nil {
			return err
		}
	}
	for _, line := range []string{"addr add " + localVTEP + "/24 dev br-phy", "link set br-phy up"} {
		if err := b.ip("dut", line); err != nil {
			return err
		}
	}
	for _, args := range [][]string{
		{"ovs-ofctl", "add-flow", "unix:" + filepath.Join(o.dir, "br-int.mgmt"), "in_port=1,actions=output:2"},
		{"ovs-appctl", "-t", filepath.Join(o.dir, "vswitchd.ctl"), "tnl/arp/set", "br-phy", peerVTEP, b.endMAC},
	} {
		if err := o.run(args...); err != nil {
			return err
		}
	}
	return nil
}

func (o *ovsDevice) run(args ...string) error {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), o.env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

func (o *ovsDevice) vsctl(line string) error {
	return o.run(append([]string{"ovs-vsctl", "--db=unix:" + filepath.Join(o.dir, "db.sock")}, strings.Fields(line)...)...)
}

func (o *ovsDevice) processes() []int { return []int{o.vswitchd.pid()} }

func (o *ovsDevice) stop() error {
	err := errors.Join(o.vswitchd.stop(), o.db.stop())
	return errors.Join(err, os.RemoveAll(o.dir))
}
