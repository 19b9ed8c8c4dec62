package fabric

import (
	"fmt"
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

// CopyFile is the copy of a lab's file, by which later commands know it.
func CopyFile(lab string) string { return filepath.Join(StateRoot, lab, "fabric.yaml") }

// OfLab returns the topology of a lab that is up.
func OfLab(lab string) (*Topology, error) {
	f, err := Load(CopyFile(lab))
	if err != nil {
		return nil, fmt.Errorf("find out what lab %s consists of: %w", lab, err)
	}
	return f.Expand(), nil
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
