package rtnl

import (
	"encoding/binary"
	"iter"
	"syscall"

	"golang.org/x/sys/unix"
)

// Message is a message of the kernel (struct nlmsghdr).
type Message struct {
	Kind    uint16 // RTM_*, NLMSG_*
	Flags   uint16 // NLM_F_*
	Seq     uint32 // of the request that it answers
	Payload []byte // a part of what was read
}

// Messages yields the messages of b. It ends at the first one that does not fit into b.
func Messages(b []byte) iter.Seq[Message] {
	return func(yield func(Message) bool) {
		for len(b) >= unix.SizeofNlMsghdr {
			size := int(binary.NativeEndian.Uint32(b))
			if size < unix.SizeofNlMsghdr || size > len(b) {
				return
			}
			m := Message{
				Kind: binary.NativeEndian.Uint16(b[4:]), Flags: binary.NativeEndian.Uint16(b[6:]), Seq: binary.NativeEndian.Uint32(b[8:]),
				Payload: b[unix.SizeofNlMsghdr:size],
			}
			if !yield(m) {
				return
			}
			b = b[min(align(size), len(b)):]
		}
	}
}

// errno returns what NLMSG_ERROR or NLMSG_DONE says went wrong.
func (m Message) errno() error {
	if len(m.Payload) < 4 {
		return nil
	}
	if code := int32(binary.NativeEndian.Uint32(m.Payload)); code < 0 {
		return syscall.Errno(-code)
	}
	return nil
}
