package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
)

const (
	pingAttempts = 5
	pingTimeout  = 500 * time.Millisecond // of one attempt
)

// ping sends echo requests to all targets at once, and repeats unanswered ones. It
// returns the round-trip times, -1 for no answer.
func (h *host) ping(ctx context.Context, targets []*host) ([]time.Duration, error) {
	var conn net.PacketConn
	err := h.inside(func() (err error) {
		conn, err = net.ListenPacket("ip4:icmp", "0.0.0.0")
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("raw socket for ping: %w", err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	rtts := slices.Repeat([]time.Duration{-1}, len(targets))
	sent := make([]time.Time, len(targets))
	echo := icmp.Echo{ID: os.Getpid() & 0xffff, Data: make([]byte, 48)}
	for echo.Seq = range pingAttempts {
		request, err := (&icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &echo}).Marshal(nil)
		if err != nil {
			return nil, err
		}
		for i, t := range targets {
			if rtts[i] < 0 {
				sent[i] = time.Now()
				// An unreachable target makes the send fail; it counts as no answer.
				_, _ = conn.WriteTo(request, &net.IPAddr{IP: t.ip().AsSlice()})
			}
		}
		if err := conn.SetReadDeadline(time.Now().Add(pingTimeout)); err != nil {
			return nil, err
		}
		for slices.Contains(rtts, -1) {
			from, err := echoReply(conn, echo.ID, echo.Seq)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("read echo reply: %w", err)
			}
			i := slices.IndexFunc(targets, func(t *host) bool { return t.ip().String() == from })
			if i >= 0 && rtts[i] < 0 {
				rtts[i] = time.Since(sent[i])
			}
		}
	}
	return rtts, nil
}

// echoReply reads messages until one is a reply to a request.
func echoReply(conn net.PacketConn, id, seq int) (from string, err error) {
	buf := make([]byte, 1500)
	for {
		n, addr, err := conn.ReadFrom(buf)
		if err != nil {
			return "", err
		}
		m, err := icmp.ParseMessage(ipv4.ICMPTypeEchoReply.Protocol(), buf[:n])
		if err != nil || m.Type != ipv4.ICMPTypeEchoReply {
			continue
		}
		if e, ok := m.Body.(*icmp.Echo); ok && e.ID == id && e.Seq == seq {
			return addr.String(), nil
		}
	}
}
