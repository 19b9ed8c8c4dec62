//go:build vm

package vm

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/test/machine"
	"github.com/loomfabric/loom/test/machine/proto"
)

// managers are the rows of TestVMUnits: releases with a systemd that knows notify-reload
// and with one that does not.
var managers = []release{{suite: "bookworm", copies: "copy", reload: "notify"}, {suite: "trixie", copies: "copy", reload: "notify-reload"}}

// TestVMUnits: systemd, as a machine's first process, runs the units of deploy/systemd as
// they are, as user loom with the capabilities and in the sandbox that they ask for.
func TestVMUnits(t *testing.T) {
	need(t)
	for _, r := range managers {
		t.Run(r.suite, func(t *testing.T) {
			s := newSite(t, r, "/sbin/init", addSystem)
			s.steps(t, "journalctl --no-pager -n 60 -u leafd -u spined", []step{
				{"start", func(t *testing.T) { s.unitStarts(t, r) }},
				{"socket", s.socketIsForTheGroup},
				{"traffic", func(t *testing.T) { s.hearsAll(t); s.carries(t) }},
				{"reload", s.unitReloads},
				{"kill", s.unitKilled},
				{"watchdog", s.watched},
				{"stop", s.unitStops},
				{"spine", s.spineStarts},
			})
		})
	}
}

// addSystem adds what an installation does to the packages' files: Loom's units and
// configuration, and the guest program as a service.
func addSystem(i *machine.Image) {
	const deploy = "../../deploy/"
	for _, name := range []string{"leafd", "spined"} {
		i.Add("/usr/lib/systemd/system/"+name+".service", deploy+"systemd/"+name+".service", 0o644)
	}
	i.Add("/usr/lib/sysusers.d/loom.conf", deploy+"systemd/sysusers.d/loom.conf", 0o644)
	i.File(configFile, []byte(leafYAML("native", "auto")), 0o644)
	i.File("/etc/loom/spined.yaml", []byte("name: spine\nworkers: 2\npolling: interrupt\nvteps: [10.255.0.0/24]\nports:\n  - {interface: eth2, link_rate: 1Gbit}\n"), 0o644)
	i.File("/etc/machine-id", []byte("4c6f6f6d4c6f6f6d4c6f6f6d4c6f6f6d\n"), 0o444)
	i.File("/etc/hostname", []byte("leaf\n"), 0o644)
	i.Link("/etc/systemd/system/default.target", "/usr/lib/systemd/system/multi-user.target")
	i.File("/etc/systemd/system/guest.service", []byte("[Unit]\nDefaultDependencies=no\n[Service]\nExecStart="+proto.Program+"\n"), 0o644)
	i.Link("/etc/systemd/system/multi-user.target.wants/guest.service", "/etc/systemd/system/guest.service")
}

// property is a property of leafd.service.
func (s *site) property(name string) string {
	s.t.Helper()
	return strings.TrimSpace(s.run("systemctl show --value -p " + name + " leafd"))
}

// restarted makes leafd end, and waits until systemd has started another one.
func (s *site) restarted(end func()) {
	s.t.Helper()
	before := s.number("systemctl show --value -p NRestarts leafd")
	end()
	s.eventually(func() string {
		state, n := s.property("ActiveState"), s.number("systemctl show --value -p NRestarts leafd")
		if state != "active" || n != before+1 {
			return fmt.Sprintf("leafd.service is %s after %d restarts, want active after %d", state, n, before+1)
		}
		return ""
	})
}

// unitStarts: the unit becomes active when the leaf forwards, with all that the sandbox
// might have kept from it.
func (s *site) unitStarts(t *testing.T, r release) {
	s.run("systemctl start leafd")
	if state := s.property("ActiveState"); state != "active" {
		t.Fatalf("leafd.service is %s", state)
	}
	if got := s.property("Type"); got != r.reload {
		t.Errorf("the unit's type is %q, want %q", got, r.reload)
	}
	if status := s.property("StatusText"); status != "forwarding" {
		t.Errorf("the unit's status is %q", status)
	}
	pid := s.property("MainPID")
	if user := s.run("ps -o user=,group= -p " + pid); strings.Join(strings.Fields(user), " ") != "loom loom" {
		t.Errorf("leafd runs as %q", user)
	}
	if sys := s.number("while read -r key value; do [[ $key == CapEff: ]] && echo 0x$value; done </proc/" + pid + "/status || true"); sys&(1<<21) != 0 {
		t.Errorf("leafd has CAP_SYS_ADMIN: %#x", sys)
	}
	if out := s.run("loomctl ports"); strings.Count(out, "native/"+r.copies) != 3 {
		t.Errorf("not all ports are open in native mode:\n%s", out)
	}
	if !s.promiscuous() {
		t.Error("access port eth0 is not promiscuous")
	}
	// Names of programs are not for a process without CAP_SYS_ADMIN: it keeps records.
	if records := strings.Fields(s.run("ls /run/loom/xdp")); len(records) != 2 {
		t.Errorf("leafd recorded programs %v, want those of two access ports", records)
	}
}

// socketIsForTheGroup: members of group loom may ask the leaf, and others may not.
func (s *site) socketIsForTheGroup(t *testing.T) {
	const as = "setpriv --reuid 4242 --regid 4242 "
	if out, err := s.try(as + "--groups loom loomctl ports"); err != nil || !strings.Contains(out, "eth0") {
		t.Errorf("loomctl as a member of the group: %v\n%s", err, out)
	}
	if out, err := s.try(as + "--clear-groups loomctl ports"); err == nil {
		t.Errorf("loomctl as a stranger:\n%s", out)
	}
}

// unitReloads: systemctl reload takes over a good file, and fails for one with mistakes.
// What needs a restart is refused, which the status shows. In each case leafd runs on.
func (s *site) unitReloads(t *testing.T) {
	pid := s.property("MainPID")
	good := leafYAML("native", "auto")
	reload := func(text string) (string, error) {
		t.Helper()
		if err := s.vm.Put(configFile, text); err != nil {
			t.Fatal(err)
		}
		return s.try("systemctl reload leafd")
	}
	if out, err := reload(good + "scheme: conga\n"); err != nil {
		t.Errorf("reload: %v\n%s", err, out)
	}
	s.eventually(func() string { // not at once where systemd does not wait for the answer
		if s.metric("loom_config_last_reload_successful") != 1 || s.property("StatusText") != "forwarding" {
			return "the new configuration is not in force: " + s.property("StatusText")
		}
		return ""
	})
	if out, err := reload(good + "scheme: no-such-scheme\n"); err == nil {
		t.Errorf("reload of a file with a mistake succeeded: %s", out)
	}
	if out, err := reload(strings.Replace(good, "workers: 2", "workers: 1", 1)); err != nil {
		t.Errorf("reload of a change that needs a restart: %v\n%s", err, out)
	}
	s.eventually(func() string {
		if status := s.property("StatusText"); !strings.Contains(status, "workers") {
			return "the status does not name the key that needs a restart: " + status
		}
		return ""
	})
	if out, err := reload(good); err != nil {
		t.Errorf("reload of the first file: %v\n%s", err, out)
	}
	if now := s.property("MainPID"); now != pid {
		t.Errorf("leafd is process %s now, was %s", now, pid)
	}
	s.carries(t)
}

// unitKilled: from kill -9 until systemd has started leafd again, nothing of a host reaches
// the leaf's kernel; then the new one takes the closed ports over.
func (s *site) unitKilled(t *testing.T) {
	var packets, answers int
	s.restarted(func() {
		s.run("systemctl kill -s KILL leafd")
		packets, answers = s.attack()
	})
	more, again := s.attack()
	if packets+answers+more+again != 0 {
		t.Errorf("the kernel received %d IP packets and answered %d ARP requests after the kill, %d and %d after the restart", packets, answers, more, again)
	}
	if records := strings.Fields(s.run("ls /run/loom/xdp")); len(records) != 2 {
		t.Errorf("after the restart there are records of programs %v, want two", records)
	}
	s.hearsAll(t)
	s.carries(t)
}

// watched: a leafd that hangs is aborted and started again.
func (s *site) watched(t *testing.T) {
	start := time.Now()
	s.restarted(func() { s.run("kill -STOP " + s.property("MainPID")) })
	t.Logf("%v after SIGSTOP leafd was up again", time.Since(start).Round(time.Second))
	if log := s.run("journalctl --no-pager -u leafd"); !strings.Contains(log, "Watchdog timeout") || !strings.Contains(log, "SIGABRT") {
		t.Errorf("the journal does not say that the watchdog aborted leafd:\n%s", log)
	}
	s.carries(t)
}

// unitStops: a stopped leaf's access ports stay closed, and it starts again.
func (s *site) unitStops(t *testing.T) {
	s.run("systemctl stop leafd")
	if state, result := s.property("ActiveState"), s.property("Result"); state != "inactive" || result != "success" {
		t.Errorf("leafd.service is %s: %s", state, result)
	}
	if packets, answers := s.attack(); packets+answers != 0 {
		t.Errorf("the kernel received %d IP packets and answered %d ARP requests while leafd was stopped", packets, answers)
	}
	s.run("systemctl start leafd")
	s.carries(t)
}

// spineStarts: the unit of a spine becomes active, and stops.
func (s *site) spineStarts(t *testing.T) {
	s.run("systemctl stop leafd; systemctl start spined")
	if out := s.run("loomctl --socket /run/loom/spined.sock ports"); !strings.Contains(out, "native/") {
		t.Errorf("the spine's port is not open:\n%s", out)
	}
	s.run("systemctl stop spined; systemctl start leafd")
}
