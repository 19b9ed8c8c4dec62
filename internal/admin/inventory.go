package admin

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/loomfabric/loom/internal/yamlfile"
)

// InventoryFile is where the inventory is looked for.
const InventoryFile = "/etc/loom/nodes.yaml"

// Inventory is the file that says where the admin API of each node of a fabric is.
type Inventory struct {
	Nodes map[string]string `yaml:"nodes"` // address by name
	TLS   TLSFiles          `yaml:"tls"`   // for nodes behind https

	file   string
	config *tls.Config
}

// TLSFiles are the files by which two ends prove to each other who they are.
type TLSFiles struct {
	CA   string `yaml:"ca_file"`   // who signs the nodes' certificates
	Cert string `yaml:"cert_file"` // the caller's own
	Key  string `yaml:"key_file"`
}

// LoadInventory reads an inventory. Everything that is wrong with it is reported at
// once.
func LoadInventory(file string) (*Inventory, error) {
	i := &Inventory{file: file}
	d := yamlfile.Load(file, "docs/loomctl.md", "an inventory of nodes")
	d.Decode(i)
	if len(d.Errs) > 0 {
		return nil, d.Errs
	}
	if len(i.Nodes) == 0 {
		return nil, fmt.Errorf("%s has no nodes: list them under nodes, as in `leaf1: unix:/run/loom/leafd.sock`", file)
	}
	var errs []error
	var err error
	if i.TLS != (TLSFiles{}) {
		i.config, err = i.TLS.Client()
		errs = append(errs, err)
	}
	for _, name := range i.Names() {
		c, err := NewClient(i.Nodes[name], i.config)
		switch {
		case name == AllNodes || name == "":
			errs = append(errs, fmt.Errorf("%s: %q is no name for a node: choose another", file, name))
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: node %s: %w", file, name, err))
		case c.Socket == "" && i.TLS == (TLSFiles{}):
			errs = append(errs, fmt.Errorf("%s: node %s is behind https: add tls with ca_file, cert_file and key_file", file, name))
		}
	}
	return i, errors.Join(errs...)
}

// AllNodes stands for every node of an inventory.
const AllNodes = "all"

// Names lists the nodes by name.
func (i *Inventory) Names() []string { return slices.Sorted(maps.Keys(i.Nodes)) }

// Client returns a client for a node.
func (i *Inventory) Client(name string) (*Client, error) {
	address, ok := i.Nodes[name]
	if !ok {
		return nil, fmt.Errorf("%s has no node %q: it has %s", i.file, name, yamlfile.OrList(i.Names()))
	}
	return NewClient(address, i.config)
}

// Client reads the files, for the end that asks.
func (f TLSFiles) Client() (*tls.Config, error) {
	if f.CA == "" || f.Cert == "" || f.Key == "" {
		return nil, errors.New("tls needs ca_file, cert_file and key_file: a node and who asks it prove to each other who they are")
	}
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("tls: cert_file %s, key_file %s: %w", f.Cert, f.Key, err)
	}
	text, err := os.ReadFile(f.CA)
	if err != nil {
		return nil, fmt.Errorf("tls: ca_file: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("tls: ca_file %s has no certificate in PEM", f.CA)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool, MinVersion: tls.VersionTLS13}, nil
}
