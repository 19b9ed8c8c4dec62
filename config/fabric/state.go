package fabric

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// StateRoot holds a directory for every lab that is up.
const StateRoot = "/run/loom/lab"

// What ends the names of a node's files: its admin socket, which it removes when it stops,
// and its daemon's process ID, which stays.
const (
	adminSuffix   = ".admin.sock"
	processSuffix = ".pid"
)

// ProcessFile is where the process ID of a node's daemon stands.
func ProcessFile(lab, node string) string {
	return filepath.Join(StateRoot, lab, node+processSuffix)
}

// AdminSocket is where the daemon of a node of a lab answers the admin API.
func AdminSocket(lab, node string) string {
	return filepath.Join(StateRoot, lab, node+adminSuffix)
}

// AdminSockets returns the admin sockets of a lab by the names of its nodes that have a
// daemon, or had one. Without a lab of that name the error says which there are.
func AdminSockets(lab string) (map[string]string, error) {
	paths, err := filepath.Glob(ProcessFile(lab, "*"))
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("no lab %q with daemons is up: %s", lab, upLabs())
	}
	sockets := make(map[string]string, len(paths))
	for _, p := range paths {
		node := strings.TrimSuffix(filepath.Base(p), processSuffix)
		sockets[node] = AdminSocket(lab, node)
	}
	return sockets, nil
}

// hostsFile says which hosts a lab has.
const hostsFile = "hosts.json"

// LabHost is a host of a lab that is up.
type LabHost struct {
	Name string     `json:"name"`
	Leaf string     `json:"leaf"`
	Port string     `json:"port"` // the leaf's
	VNI  uint32     `json:"vni"`
	IP   netip.Addr `json:"ip"`
	IP6  netip.Addr `json:"ip6"`
	MAC  string     `json:"mac"`
}

// WriteHosts notes the hosts of a lab that has come up.
func (t *Topology) WriteHosts(lab string) error {
	hosts := make([]LabHost, len(t.Hosts))
	for i := range t.Hosts {
		h := &t.Hosts[i]
		hosts[i] = LabHost{h.Name, t.Leaves[h.Leaf].Name, h.Port, h.VNI, h.Addr.Addr(), h.Addr6.Addr(), net.HardwareAddr(h.MAC[:]).String()}
	}
	text, err := json.Marshal(hosts)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(StateRoot, lab, hostsFile), append(text, '\n'), 0o644)
}

// LabHosts returns the hosts of a lab that is up.
func LabHosts(lab string) (hosts []LabHost, err error) {
	file := filepath.Join(StateRoot, lab, hostsFile)
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("find out the hosts of lab %s: %w", lab, err)
	}
	if err := json.Unmarshal(text, &hosts); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return hosts, nil
}

// Labs lists the labs that are up and have daemons.
func Labs() []string {
	paths, _ := filepath.Glob(ProcessFile("*", "*")) // the pattern is well formed
	var labs []string
	for _, p := range paths {
		if lab := filepath.Base(filepath.Dir(p)); len(labs) == 0 || labs[len(labs)-1] != lab {
			labs = append(labs, lab)
		}
	}
	return labs
}

// upLabs says which labs are up.
func upLabs() string {
	if labs := Labs(); len(labs) > 0 {
		return "there is " + strings.Join(labs, ", ")
	}
	if _, err := os.ReadDir(StateRoot); os.IsPermission(err) {
		return StateRoot + " is not yours to read: use sudo"
	}
	return "`loomlab up` starts one"
}
