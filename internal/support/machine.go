package support

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/loomfabric/loom/internal/doctor"
)

const (
	commandTime = 5 * time.Second
	logLines    = 2000
	logBytes    = 1 << 20
)

// netCommands are run in a node's network namespace. PORT stands for each port.
var netCommands = []string{
	"ip -d -s link", "ip -d addr", "ip -4 route show table all", "ip -6 route show table all", "ip rule", "ip neigh", "ip nexthop",
	"bridge -d link", "bridge -d vlan", "bridge -s fdb", "tc -s qdisc", "nft list ruleset", "ss -uanp",
	"ethtool PORT", "ethtool -i PORT", "ethtool -k PORT", "ethtool -S PORT", "ethtool -l PORT", "ethtool -g PORT", "ethtool -c PORT", "ethtool -n PORT rx-flow-hash udp4", "ethtool -x PORT",
}

// hostCommands and hostFiles are those of the machine.
var (
	hostCommands = []string{"uname -a", "lscpu", "bpftool net", "bpftool prog", "chronyc tracking", "timedatectl"}
	hostFiles    = []string{
		"/etc/os-release", "/proc/cmdline", "/proc/cpuinfo", "/proc/meminfo", "/proc/interrupts", "/proc/softirqs", "/proc/loadavg", "/proc/net/softnet_stat",
		"/sys/devices/system/cpu/isolated", "/sys/devices/system/cpu/online",
	}
)

// sysctlDirs are the settings of a namespace.
var sysctlDirs = []string{"net/core", "net/ipv4", "net/ipv6", "net/bridge", "net/netfilter"}

// machine collects what a node's network namespace says.
func (a *archive) machine(ctx context.Context, n *doctor.Node, dir string) error {
	texts := make(map[string][]byte)
	err := n.Inside(func(bool) error {
		for _, line := range netCommands {
			if !strings.Contains(line, "PORT") {
				a.run(ctx, texts, dir, line)
				continue
			}
			for i := range n.Ports {
				a.run(ctx, texts, dir, strings.Replace(line, "PORT", n.Ports[i].Port, 1))
			}
		}
		texts["sysctl.txt"] = sysctls()
		return nil
	})
	for _, name := range []string{"status", "limits", "cgroup", "sched"} {
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", n.Parameters.PID, name)); err == nil {
			texts["process-"+name+".txt"] = b
		}
	}
	return errors.Join(err, a.addAll(dir, texts))
}

// host collects what the machine says.
func (a *archive) host(ctx context.Context) error {
	texts := make(map[string][]byte)
	for _, line := range hostCommands {
		a.run(ctx, texts, "host", line)
	}
	for _, file := range hostFiles {
		if b, err := os.ReadFile(file); err == nil {
			texts[strings.ReplaceAll(strings.TrimPrefix(file, "/"), "/", "-")+".txt"] = b
		}
	}
	return a.addAll("host", texts)
}

func (a *archive) addAll(dir string, texts map[string][]byte) error {
	for name, text := range texts {
		if err := a.add(path.Join(dir, name), text); err != nil {
			return err
		}
	}
	return nil
}

// run keeps what a command prints. A program that is not there is noted once for each line.
func (a *archive) run(ctx context.Context, texts map[string][]byte, dir, line string) {
	args := strings.Fields(line)
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		a.lack(path.Join(dir, line), err)
		return
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "$ %s\n", line)
	text.Write(out)
	if err != nil {
		fmt.Fprintf(&text, "%v\n", err)
	}
	name := args[0] + ".txt" // one file a program
	texts[name] = append(append(texts[name], text.Bytes()...), '\n')
}

// sysctls lists the settings of the calling thread's network namespace.
func sysctls() []byte {
	var text bytes.Buffer
	for _, dir := range sysctlDirs {
		root := filepath.Join("/proc/sys", dir)
		_ = filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.Contains(d.Name(), "secret") || strings.Contains(d.Name(), "fastopen_key") {
				return nil
			}
			if b, err := os.ReadFile(file); err == nil && len(b) < 4096 {
				fmt.Fprintf(&text, "%s = %s\n", strings.ReplaceAll(strings.TrimPrefix(file, "/proc/sys/"), "/", "."), bytes.TrimSpace(b))
			}
			return nil
		})
	}
	return text.Bytes()
}

// log returns the end of the daemon's log: from the journal, or from the file that it
// writes to.
func log(ctx context.Context, n *doctor.Node) ([]byte, error) {
	if n.Machine.Unit != "" {
		ctx, cancel := context.WithTimeout(ctx, commandTime)
		defer cancel()
		return exec.CommandContext(ctx, "journalctl", "--no-pager", "-o", "short-iso", "-n", fmt.Sprint(logLines), "-u", n.Machine.Unit).Output()
	}
	file := fmt.Sprintf("/proc/%d/fd/2", n.Parameters.PID)
	st, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("the daemon writes its log neither to the journal nor to a file")
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, min(st.Size(), logBytes))
	if _, err := f.ReadAt(b, max(st.Size()-logBytes, 0)); err != nil {
		return nil, err
	}
	return b, nil
}
