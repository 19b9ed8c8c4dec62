package balance

import "github.com/loomfabric/loom/internal/mono"

// plainTimes are when leaves were last sent a packet without a number, by leaf; 0: never.
// A leaf that was may have restarted, and not know the numbers from before: flows to it
// begin theirs anew.
type plainTimes []mono.Time

// note notes that a leaf is sent a packet without a number.
func (t plainTimes) note(leaf uint16, now mono.Time) {
	if int(leaf) < len(t) {
		t[leaf] = now
	}
}

// since reports whether a leaf was sent one after a flow's last packet.
func (t plainTimes) since(leaf uint16, last mono.Time) bool {
	return int(leaf) < len(t) && last < t[leaf]
}
