package loomctl

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/loomfabric/loom/config/fabric"
	"github.com/loomfabric/loom/internal/admin"
)

// Sockets are where the daemons listen if their files do not say otherwise; the
// first that exists is asked if the caller does not say which.
var Sockets = []string{"/run/loom/leafd.sock", "/run/loom/spined.sock"}

// node is a daemon that is asked.
type node struct {
	name   string // "": the only one, which nobody named
	client *admin.Client
}

// nodeFlags are the flags that say which daemons are asked.
type nodeFlags struct {
	socket, inventory, lab string
	names                  []string
}

func (f *nodeFlags) add(root *cobra.Command) {
	flags := root.PersistentFlags()
	flags.StringVar(&f.socket, "socket", "", "ask the daemon behind this admin socket (default: the first of "+strings.Join(Sockets, ", ")+" that exists)")
	flags.StringSliceVar(&f.names, "node", nil, "ask these nodes of the inventory or the lab: names, or all")
	flags.StringVar(&f.inventory, "inventory", admin.InventoryFile, "the file that says where nodes are")
	flags.StringVar(&f.lab, "lab", "", "ask the nodes of this lab, all of them if --node does not say which")
	for flag, complete := range map[string]func() []string{"node": f.known, "lab": fabric.Labs} {
		err := root.RegisterFlagCompletionFunc(flag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return complete(), cobra.ShellCompDirectiveNoFileComp
		})
		if err != nil {
			panic(err) // there is no such flag
		}
	}
}

// known lists the names that --node takes, for completion.
func (f *nodeFlags) known() []string {
	names := []string{admin.AllNodes}
	if f.lab != "" {
		sockets, _ := fabric.AdminSockets(f.lab)
		return append(names, slices.Sorted(maps.Keys(sockets))...)
	}
	if inventory, err := admin.LoadInventory(f.inventory); err == nil {
		names = append(names, inventory.Names()...)
	}
	return names
}

// choose returns the daemons that the flags mean. many says that the answer is by
// node, even if it is of one.
func (f *nodeFlags) choose() (nodes []node, many bool, err error) {
	if f.socket != "" && (f.lab != "" || len(f.names) > 0) {
		return nil, false, errors.New("--socket says which daemon: leave out --node and --lab")
	}
	if f.lab == "" && len(f.names) == 0 {
		socket := f.socket
		if socket == "" {
			socket = findSocket()
		}
		return []node{{"", &admin.Client{Socket: socket}}}, false, nil
	}
	all, err := f.source()
	if err != nil {
		return nil, false, err
	}
	names := f.names
	if len(names) == 0 || slices.Contains(names, admin.AllNodes) {
		names, many = all.Names(), true
	}
	for _, name := range slices.Compact(names) {
		c, err := all.Client(name)
		if err != nil {
			return nil, false, err
		}
		nodes = append(nodes, node{name, c})
	}
	return nodes, many || len(nodes) > 1, nil
}

// directory is what finds nodes by their names.
type directory interface {
	Names() []string
	Client(name string) (*admin.Client, error)
}

// source returns where nodes are looked up.
func (f *nodeFlags) source() (directory, error) {
	if f.lab == "" {
		return admin.LoadInventory(f.inventory)
	}
	sockets, err := fabric.AdminSockets(f.lab)
	return labNodes{f.lab, sockets}, err
}

// labNodes finds the nodes of a lab.
type labNodes struct {
	lab     string
	sockets map[string]string
}

func (l labNodes) Names() []string { return slices.Sorted(maps.Keys(l.sockets)) }

func (l labNodes) Client(name string) (*admin.Client, error) {
	socket, ok := l.sockets[name]
	if !ok {
		return nil, fmt.Errorf("lab %s has no node %q with a daemon: it has %s", l.lab, name, strings.Join(l.Names(), ", "))
	}
	return &admin.Client{Socket: socket}, nil
}

// findSocket returns the first of the usual places that has a socket; if none has,
// the first of all, for the error to name.
func findSocket() string {
	for _, s := range Sockets {
		if _, err := os.Lstat(s); err == nil {
			return s
		}
	}
	return Sockets[0]
}
