package doctor

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
)

// firewall returns the chains of netfilter that keep VXLAN from the kernel, in
// the calling thread's network namespace. Without nft nothing is known.
func firewall(port uint16) []Chain {
	path, err := exec.LookPath("nft")
	if err != nil {
		return nil
	}
	out, err := exec.Command(path, "-j", "list", "ruleset").Output()
	if err != nil {
		return nil
	}
	return blocked(out, port)
}

// ruleset is what `nft -j list ruleset` prints, as far as it matters.
type ruleset struct {
	Nftables []struct {
		Chain *struct {
			Family, Table, Name, Hook, Policy string
		}
		Rule *struct {
			Family, Table, Chain string
			Expr                 []map[string]json.RawMessage
		}
	}
}

// match is a comparison of a rule with a field of the packet.
type match struct {
	Op   string
	Left struct {
		Payload struct{ Protocol, Field string }
		Meta    struct{ Key string }
	}
	Right json.RawMessage
}

// blocked returns what drops VXLAN: rules that name its port, and chains whose policy is to
// drop and that accept neither it nor everything.
func blocked(listing []byte, port uint16) (found []Chain) {
	var rules ruleset
	if json.Unmarshal(listing, &rules) != nil {
		return nil
	}
	for _, item := range rules.Nftables {
		c := item.Chain
		if c == nil || c.Hook != "input" && c.Hook != "forward" || !slices.Contains([]string{"ip", "ip6", "inet"}, c.Family) {
			continue
		}
		name, verdict := fmt.Sprintf("%s %s %s", c.Family, c.Table, c.Name), c.Policy
		for _, other := range rules.Nftables {
			r := other.Rule
			if r == nil || r.Family != c.Family || r.Table != c.Table || r.Chain != c.Name {
				continue
			}
			if v := verdictOf(r.Expr, port); v != "" {
				verdict = v
				break
			}
		}
		if verdict == "drop" || verdict == "reject" {
			found = append(found, Chain{name, c.Family, c.Hook})
		}
	}
	return found
}

// verdictOf returns what a rule does with every packet of VXLAN; "": nothing, or only to
// some.
func verdictOf(expr []map[string]json.RawMessage, port uint16) (verdict string) {
	for _, e := range expr {
		for _, v := range []string{"accept", "drop", "reject"} {
			if _, ok := e[v]; ok {
				verdict = v
			}
		}
		raw, ok := e["match"]
		if !ok {
			continue
		}
		var m match
		if json.Unmarshal(raw, &m) != nil {
			return ""
		}
		right := strings.Trim(string(m.Right), `"`)
		switch {
		case m.Left.Payload.Field == "dport" && names(m.Right, port):
		case m.Left.Meta.Key == "l4proto" && right == "udp", m.Left.Payload.Field == "protocol" && right == "udp":
		default:
			return "" // of some packets only, or of others
		}
	}
	return verdict
}

// names reports whether a value, a set or a range has the port.
func names(right json.RawMessage, port uint16) bool {
	var one uint16
	var several struct {
		Set   []json.RawMessage
		Range []uint16
	}
	switch {
	case json.Unmarshal(right, &one) == nil:
		return one == port
	case json.Unmarshal(right, &several) != nil:
		return false
	case len(several.Range) == 2:
		return several.Range[0] <= port && port <= several.Range[1]
	}
	for _, x := range several.Set {
		if names(x, port) {
			return true
		}
	}
	return false
}
