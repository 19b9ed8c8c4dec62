package overlay

import (
	"bytes"
	"testing"
)

func TestVLANTags(t *testing.T) {
	frame := tcp4Frame(1, 2, 3, 4, 20)
	for _, off := range []int{4, 5, 18, 256} {
		buf := append(bytes.Repeat([]byte{0xee}, off), frame...)
		at := PushVLAN(buf, off, 5<<13|1<<12|100)
		check(t, "start with tag", at, off-4)
		if want := tagged(frame, EtherTypeVLAN, 5<<13|1<<12|100); !bytes.Equal(buf[at:], want) {
			t.Errorf("PushVLAN makes % x, want % x", buf[at:], want)
		}
		if !bytes.Equal(buf[:at], bytes.Repeat([]byte{0xee}, at)) {
			t.Error("PushVLAN wrote in front of the frame")
		}
		tag := VLAN(buf[at+EthernetLen:])
		check(t, "VID", tag.VID(), 100)
		check(t, "PCP", tag.PCP(), 5)
		if got := PopVLAN(buf[at:]); !bytes.Equal(got, frame) {
			t.Errorf("PopVLAN makes % x, want % x", got, frame)
		}
	}
	for _, off := range []int{-1, 0, 3, len(frame) - 13, len(frame), len(frame) + 1} {
		buf := append([]byte(nil), frame...)
		check(t, "no room", PushVLAN(buf, off, 1), -1)
		if !bytes.Equal(buf, frame) {
			t.Errorf("PushVLAN at %d changed the frame", off)
		}
	}
}

func TestPopVLANLeaves(t *testing.T) {
	service := tagged(arpFrame(), EtherTypeQinQ, 7)
	if got := PopVLAN(append([]byte(nil), service...)); !bytes.Equal(got, arpFrame()) {
		t.Errorf("service tag: % x", got)
	}
	for name, frame := range map[string][]byte{
		"untagged": arpFrame(), "tag cut": service[:17], "empty": nil, "short": service[:13],
	} {
		if got := PopVLAN(append([]byte(nil), frame...)); !bytes.Equal(got, frame) {
			t.Errorf("%s: % x became % x", name, frame, got)
		}
	}
}

func TestMAC(t *testing.T) {
	m := MAC{0x02, 0xab, 5: 0xff}
	check(t, "text", m.String(), "02:ab:00:00:00:ff")
	check(t, "number", m.Uint64(), 0x02ab000000ff)
	check(t, "and back", MACFromUint64(m.Uint64()), m)
	check(t, "group", m.IsGroup(), false)
	check(t, "group", MAC{1}.IsGroup(), true)
	check(t, "zero", MAC{}.IsZero(), true)
	check(t, "zero", m.IsZero(), false)
}
