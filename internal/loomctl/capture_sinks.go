package loomctl

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/loomfabric/loom/internal/capture"
)

// pcapSink writes pcapng: an interface a port, and what is known of a frame in its comment.
type pcapSink struct {
	w      io.Writer
	file   *os.File // nil: standard output
	start  *capture.Start
	filter string
	out    *pcapgo.NgWriter // nil until the first port is known
	ports  map[uint16]int   // interfaces by the number of a port
	names  []string         // by interface
}

func (p *pcapSink) port(x *capture.Port) (err error) {
	i := pcapgo.NgInterface{
		Name: x.Name, Description: fmt.Sprintf("%s port %s of %s (%s %s)", x.Kind, x.Name, p.start.Node, p.start.Role, p.start.Version),
		LinkType: layers.LinkTypeEthernet, TimestampResolution: 9, OS: "Loom",
		Filter: p.filter,
	}
	if p.out == nil {
		p.ports = map[uint16]int{}
		p.out, err = pcapgo.NewNgWriterInterface(p.w, i, pcapgo.NgWriterOptions{SectionInfo: pcapgo.NgSectionInfo{
			Application: "loomctl " + p.start.Version, Comment: "frames of " + p.start.Node,
		}})
		if err != nil {
			return err
		}
		p.ports[x.Number] = 0
	} else if p.ports[x.Number], err = p.out.AddInterface(i); err != nil {
		return err
	}
	p.names = append(p.names, x.Name)
	return nil
}

func (p *pcapSink) frame(f *capture.Frame) error {
	i, ok := p.ports[f.Port]
	if !ok {
		return fmt.Errorf("the daemon sends a frame of port %d, which it has not named", f.Port)
	}
	worker := uint32(f.Worker)
	o := pcapgo.NgPacketOptions{Comments: []string{f.Comment()}, Queue: &worker, Flags: &pcapgo.NgEpbFlags{}}
	switch f.Point {
	case capture.In:
		o.Flags.Direction = pcapgo.NgEpbFlagDirectionInbound
	case capture.Out:
		o.Flags.Direction = pcapgo.NgEpbFlagDirectionOutbound
	}
	ci := gopacket.CaptureInfo{Timestamp: f.Time, CaptureLength: len(f.Data), Length: f.Len, InterfaceIndex: i}
	return p.out.WritePacketWithOptions(ci, f.Data, o)
}

func (p *pcapSink) idle() error {
	if p.out == nil {
		return nil
	}
	return p.out.Flush()
}

// end writes what was counted: what was lost is what an interface has dropped.
func (p *pcapSink) end(e *capture.End) error {
	var err error
	for i, name := range p.names {
		for _, c := range e.Ports {
			if c.Port == name {
				err = errors.Join(err, p.out.WriteInterfaceStats(i, pcapgo.NgInterfaceStatistics{
					LastUpdate: time.Now(), PacketsReceived: c.Captured + c.Lost + c.Unseen, PacketsDropped: c.Lost + c.Unseen,
					Comment: fmt.Sprintf("%d lost for want of room, %d not looked at", c.Lost, c.Unseen),
				}))
			}
		}
	}
	err = errors.Join(err, p.idle())
	if p.file != nil {
		err = errors.Join(err, p.file.Close())
	}
	return err
}

// jsonSink writes a line of JSON a frame.
type jsonSink struct {
	out   *json.Encoder
	ports map[uint16]string
}

// jsonFrame is a line of -o json.
type jsonFrame struct {
	Time    time.Time     `json:"time"`
	Port    string        `json:"port"`
	Point   string        `json:"point"` // in, out or drop
	Worker  uint8         `json:"worker"`
	Length  int           `json:"length"`
	Made    bool          `json:"made"`
	Here    time.Duration `json:"here_ns"`
	Before  bool          `json:"here_before"` // it was here when the capture began: here_ns is since then
	Held    time.Duration `json:"held_ns"`
	Class   *uint8        `json:"class"`  // null: no scheme was asked
	Uplink  *uint8        `json:"uplink"` // null: it does not leave by one
	Scheme  string        `json:"scheme"`
	Flowlet string        `json:"flowlet"`
	Why     string        `json:"why"`
	Reason  string        `json:"reason"` // of a drop
	Data    []byte        `json:"data"`   // base64
}

func (j *jsonSink) port(x *capture.Port) error {
	j.ports[x.Number] = x.Name
	return nil
}

func (j *jsonSink) frame(f *capture.Frame) error {
	number := func(n uint8) *uint8 {
		if n == capture.None {
			return nil
		}
		return &n
	}
	return j.out.Encode(jsonFrame{
		f.Time, j.ports[f.Port], f.Point.String(), f.Worker, f.Len, f.Made, f.Here, f.Before, f.Held, number(f.Class), number(f.Uplink), f.Scheme, f.Flowlet.String(), f.Why, f.Reason, f.Data,
	})
}

func (j *jsonSink) idle() error              { return nil }
func (j *jsonSink) end(_ *capture.End) error { return nil }

// textSink prints a line a frame.
type textSink struct {
	w     io.Writer
	ports map[uint16]string
}

func (t *textSink) port(x *capture.Port) error {
	t.ports[x.Number] = x.Name
	return nil
}

func (t *textSink) frame(f *capture.Frame) error {
	_, err := fmt.Fprintf(t.w, "%s %s %s: %s\n", f.Time.Format("15:04:05.000000"), t.ports[f.Port], summary(f), f.Comment())
	return err
}

func (t *textSink) idle() error              { return nil }
func (t *textSink) end(_ *capture.End) error { return nil }

// summary says in a few words what a frame is: who sends it to whom, tunnel first.
func summary(f *capture.Frame) string {
	p := gopacket.NewPacket(f.Data, layers.LayerTypeEthernet, gopacket.DecodeOptions{NoCopy: true})
	text, network := "", gopacket.NetworkLayer(nil)
	for _, l := range p.Layers() {
		switch x := l.(type) {
		case gopacket.NetworkLayer:
			network = x
		case *layers.VXLAN:
			text += fmt.Sprintf("%v > %v VNI %d, ", network.NetworkFlow().Src(), network.NetworkFlow().Dst(), x.VNI)
			network = nil
		case gopacket.TransportLayer:
			src, dst := x.TransportFlow().Endpoints()
			if network != nil && x.LayerPayload() != nil && !tunnel(p, l) {
				n := network.NetworkFlow()
				return text + fmt.Sprintf("%v.%v > %v.%v %v, %d bytes", n.Src(), src, n.Dst(), dst, l.LayerType(), f.Len)
			}
		case *layers.ARP:
			return text + fmt.Sprintf("ARP, %d bytes", f.Len)
		}
	}
	if network != nil {
		n := network.NetworkFlow()
		return text + fmt.Sprintf("%v > %v, %d bytes", n.Src(), n.Dst(), f.Len)
	}
	if l := p.LinkLayer(); l != nil {
		n := l.LinkFlow()
		return text + fmt.Sprintf("%v > %v, %d bytes", n.Src(), n.Dst(), f.Len)
	}
	return text + fmt.Sprintf("%d bytes", f.Len)
}

// tunnel reports whether VXLAN is what a transport layer carries.
func tunnel(p gopacket.Packet, transport gopacket.Layer) bool {
	all := p.Layers()
	for i, l := range all[:len(all)-1] {
		if l == transport {
			return all[i+1].LayerType() == layers.LayerTypeVXLAN
		}
	}
	return false
}
