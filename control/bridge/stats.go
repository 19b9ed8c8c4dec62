package bridge

import "time"

// Stats counts a mirror's work.
type Stats struct {
	_ struct{} `stat:"bridge"`

	Events    uint64 `stat:"events" help:"Events of the kernel about links and forwarding entries."`
	Malformed uint64 `stat:"malformed_events" help:"Events that could not be read."`
	Lost      uint64 `stat:"lost_events" help:"Times events were lost, and everything was listed again."`
	Dumps     uint64 `stat:"dumps" help:"Times all forwarding entries were listed."`
	Models    uint64 `stat:"models" help:"Times networks and ports were derived from the kernel's links."`
	Changes   uint64 `stat:"changes" help:"Changes of addresses that the data plane was told of."`

	Addresses  int           `stat:"addresses,gauge" help:"Addresses of the kernel that the data plane may forward to."`
	Multihomed int           `stat:"multihomed_entries,gauge" help:"Forwarding entries with a next-hop object, which are left to the kernel."`
	Networks   int           `stat:"networks,gauge" help:"Networks of the kernel that the data plane forwards for."`
	Peers      int           `stat:"peers,gauge" help:"Remote VTEPs that the kernel's entries name."`
	Left       int           `stat:"left,gauge" help:"Findings for which something is left to the kernel."`
	DumpTime   time.Duration `stat:"dump_seconds,gauge" help:"Time that the last list of all forwarding entries took."`
	Synced     bool          // nothing was lost that a list has not made up for
}
