package lab

import (
	"strings"
	"testing"

	"github.com/loomfabric/loom/config/fabric"
)

const clabFile = `
name: Clos-02
prefix: ""
mgmt: {network: fixedips}
topology:
  defaults: {kind: linux}
  groups:
    spines: {image: "ghcr.io/x/frr:1"}
    hosts: {labels: {role: host}}
  nodes:
    spine1: {group: spines}
    spine2: {group: spines}
    leaf10: {labels: {role: leaf}, binds: [a:b]}
    leaf2: {labels: {role: leaf, rack: 7}}
    client-1: {group: hosts, exec: ["ip addr add 10.0.0.1/24 dev eth1"]}
    h2: {group: hosts}
    db: {kind: linux, group: servers}
  links:
    - endpoints: ["leaf10:eth1", "spine1:eth1"]
    - endpoints: [spine2:eth1, leaf10:eth2]
    - endpoints: ["leaf2:e1-1", "spine1:e1-2"]
      mtu: 9000
    - type: veth
      endpoints:
        - {node: leaf2, interface: eth2}
        - node: spine2
          interface: eth9
    - endpoints: ["client-1:eth1", "leaf10:eth3"]
    - endpoints: ["leaf2:eth3", "h2:eth1"]
    - endpoints: ["leaf2:eth4", "db:eth1"]
`

func TestImport(t *testing.T) {
	text, err := Import("dir/clos.clab.yml", []byte(clabFile))
	if err != nil {
		t.Fatal(err)
	}
	want := `# loomlab import made this of clos.clab.yml. Images, configurations, commands, mounts and addresses are left out:
# leaves and spines run leafd and spined, and the lab gives addresses.
# L0 is leaf2
# L1 is leaf10
# S0 is spine1
# S1 is spine2
name: clos_02
leaves: 2
spines: 2
links: {parallel: 1} # with a rate, as in rate: 100Mbit, schemes see load
hosts:
  list:
    - {name: client_1, leaf: L1} # client-1
    - {name: db, leaf: L0}
    - {name: h2, leaf: L0}
vnis: [{vni: 100}]
`
	if text != want {
		t.Errorf("imported as\n%s\nwant\n%s", text, want)
	}
	f, err := fabric.Parse("f.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if topo := f.Expand(); len(topo.Links) != 4 || len(topo.Hosts) != 3 {
		t.Errorf("%d links, %d hosts", len(topo.Links), len(topo.Hosts))
	}
}

// What a fabric of Loom's cannot be is named, all at once, with what to do.
func TestImportRefuses(t *testing.T) {
	for _, tt := range []struct{ old, text, want string }{
		{"    h2: {group: hosts}", "    h2: {kind: nokia_srlinux, group: hosts}", `node h2 is of kind "nokia_srlinux": make it kind: linux`},
		{"role: leaf, rack: 7", "rack: 7", `node leaf2 is no leaf, spine or host, as far as its group or its label role say (""): add labels: {role: leaf}`},
		{`["leaf2:e1-1", "spine1:e1-2"]`, `["leaf2:e1-1", "leaf10:e1-2"]`, "link 3 joins leaf2 (leaf) and leaf10 (leaf)"},
		{`["leaf2:e1-1", "spine1:e1-2"]`, `["leaf2:e1-1", "spine2:e1-2"]`, "there are 0 links between leaf2 and spine1: a leaf of a lab has as many to each spine, here 2"},
		{"  links:\n", "  links:\n    - endpoints: [\"leaf10:eth8\", \"spine1:eth8\"]\n", "there are 1 links between leaf2 and spine2: a leaf of a lab has as many to each spine, here 2"},
		{`["leaf2:eth3", "h2:eth1"]`, `["leaf2:eth3", "host:eth1"]`, "link 6 leads to host, which is no node"},
		{`["leaf2:eth3", "h2:eth1"]`, `["leaf2:eth3", "db:eth2"]`, "host db has links to leaf2 and leaf2"},
		{`    - endpoints: ["leaf2:eth3", "h2:eth1"]`, "", "host h2 has no link to a leaf"},
		{`["leaf2:eth3", "h2:eth1"]`, `["leaf2:eth3"]`, "link 6 has 1 endpoints"},
		{"client-1", "client-number-one", `"client_number_one"`},
		{"  nodes:", "  nodes: 7\n  more:", "is no containerlab topology"},
	} {
		text := strings.ReplaceAll(clabFile, tt.old, tt.text)
		if text == clabFile {
			t.Fatalf("there is no %q", tt.old)
		}
		if _, err := Import("clos.clab.yml", []byte(text)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v\nwant %q", tt.text, err, tt.want)
		}
	}
}
