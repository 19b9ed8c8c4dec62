package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// ICMP echo, RFC 792.
const (
	icmpEchoReply   = 0
	icmpEchoRequest = 8
	icmpHeaderLen   = 8
)

// ping sends echo requests to all targets at once, and repeats unanswered ones. It
// returns the round-trip times, -1 for no answer.
func ping(s *pingSpec) ([]time.Duration, error) {
	conn, err := net.ListenPacket("ip4:icmp", "0.0.0.0")
	if err != nil {
		return nil, fmt.Errorf("raw socket for ping: %w", err)
	}
	defer conn.Close()
	id := uint16(os.Getpid())
	rtts := make([]time.Duration, len(s.Targets))
	index := map[string]int{}
	for i, t := range s.Targets {
		rtts[i] = -1
		index[t] = i
	}
	missing := len(rtts)
	for attempt := 0; attempt < s.Attempts && missing > 0; attempt++ {
		var sent = make([]time.Time, len(rtts))
		for i, t := range s.Targets {
			if rtts[i] >= 0 {
				continue
			}
			sent[i] = time.Now()
			// An unreachable target makes the send fail; it counts as no answer.
			_, _ = conn.WriteTo(echoRequest(id, uint16(attempt)), &net.IPAddr{IP: net.ParseIP(t)})
		}
		n, err := collect(conn, id, uint16(attempt), time.Now().Add(s.Timeout), missing, func(from string, now time.Time) bool {
			i, ok := index[from]
			if !ok || rtts[i] >= 0 {
				return false
			}
			rtts[i] = now.Sub(sent[i])
			return true
		})
		if err != nil {
			return nil, err
		}
		missing -= n
	}
	return rtts, nil
}

// collect reads echo replies until want have been accepted or the deadline has
// passed.
func collect(conn net.PacketConn, id, seq uint16, deadline time.Time, want int, accept func(string, time.Time) bool) (int, error) {
	if err := conn.SetReadDeadline(deadline); err != nil {
		return 0, err
	}
	buf := make([]byte, 1500)
	got := 0
	for got < want {
		n, from, err := conn.ReadFrom(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			return got, fmt.Errorf("read echo reply: %w", err)
		}
		b := buf[:n]
		if n < icmpHeaderLen || b[0] != icmpEchoReply ||
			binary.BigEndian.Uint16(b[4:]) != id || binary.BigEndian.Uint16(b[6:]) != seq {
			continue
		}
		if accept(from.String(), time.Now()) {
			got++
		}
	}
	return got, nil
}

func echoRequest(id, seq uint16) []byte {
	b := make([]byte, icmpHeaderLen+48)
	b[0] = icmpEchoRequest
	binary.BigEndian.PutUint16(b[4:], id)
	binary.BigEndian.PutUint16(b[6:], seq)
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(b[2:], ^uint16(sum))
	return b
}
