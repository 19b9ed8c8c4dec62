package fabric

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// StateRoot holds a directory for every lab that is up.
const StateRoot = "/run/loom/lab"

// adminSuffix ends the name of a node's admin socket.
const adminSuffix = ".admin.sock"

// AdminSocket is where the daemon of a node of a lab answers the admin API.
func AdminSocket(lab, node string) string {
	return filepath.Join(StateRoot, lab, node+adminSuffix)
}

// AdminSockets returns the admin sockets of a lab by the nodes' names. Without a lab
// of that name the error says which there are.
func AdminSockets(lab string) (map[string]string, error) {
	paths, err := filepath.Glob(AdminSocket(lab, "*"))
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("no lab %q with daemons is up: %s", lab, upLabs())
	}
	sockets := make(map[string]string, len(paths))
	for _, p := range paths {
		sockets[strings.TrimSuffix(filepath.Base(p), adminSuffix)] = p
	}
	return sockets, nil
}

// Labs lists the labs that are up and have daemons.
func Labs() []string {
	paths, _ := filepath.Glob(AdminSocket("*", "*")) // the pattern is well formed
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
