package lab

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// Each request on a connection to an agent begins with a header of 16 bytes: the
// operation, the workload and the number of bytes.
const (
	headerLen = 16
	wantBytes = 'R' // answer with a number of bytes
	sinkBytes = 'B' // read all that follows
)

type header struct {
	op       byte
	workload uint32
	bytes    uint64
}

func (h header) encode() []byte {
	b := make([]byte, headerLen)
	b[0] = h.op
	binary.BigEndian.PutUint32(b[4:], h.workload)
	binary.BigEndian.PutUint64(b[8:], h.bytes)
	return b
}

func decodeHeader(b []byte) header {
	return header{b[0], binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint64(b[8:])}
}

const chunk = 64 << 10

// zeros is the payload of all flows; it is read-only.
var zeros [chunk]byte

// buffers holds buffers for payload that is read and discarded.
var buffers = sync.Pool{New: func() any { return new([chunk]byte) }}

func (a *agent) serveTCP() {
	for {
		c, err := a.tcp.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors: give them time to come back
			time.Sleep(10 * time.Millisecond)
			continue
		}
		go a.serveConn(c)
	}
}

func (a *agent) serveConn(c net.Conn) {
	defer c.Close()
	var b [headerLen]byte
	for {
		if _, err := io.ReadFull(c, b[:]); err != nil {
			return // the client has closed, or its host is unreachable
		}
		switch h := decodeHeader(b[:]); h.op {
		case wantBytes:
			if writeZeros(c, h.bytes) != nil {
				return
			}
		case sinkBytes:
			a.sink(c, int(h.workload))
			return
		default:
			return
		}
	}
}

func writeZeros(w io.Writer, n uint64) error {
	for n > 0 {
		k := min(n, chunk)
		if _, err := w.Write(zeros[:k]); err != nil {
			return err
		}
		n -= k
	}
	return nil
}

func (a *agent) sink(c net.Conn, workload int) {
	buf := buffers.Get().(*[chunk]byte)
	defer buffers.Put(buf)
	for {
		n, err := c.Read(buf[:])
		a.run.Load().count(workload, n)
		if err != nil {
			return
		}
	}
}

func (a *agent) serveUDP() {
	buf := make([]byte, chunk)
	for {
		n, err := a.udp.Read(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || n < headerLen {
			continue // an ICMP error of an earlier datagram, or not ours
		}
		r := a.run.Load()
		w := int(decodeHeader(buf[:headerLen]).workload)
		if r == nil || w >= len(r.counts) {
			continue
		}
		r.count(w, n)
		r.counts[w].datagramsReceived.Add(1)
	}
}
