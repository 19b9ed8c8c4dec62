package dataplane

import "testing"

func TestReasonsInALog(t *testing.T) {
	for want, r := range map[string]Reason{
		"no_tables: none yet":   {Name: "no_tables", Detail: "none yet"},
		"port_closed up0: gone": {Name: "port_closed", Port: "up0", Detail: "gone"},
	} {
		if got := r.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
