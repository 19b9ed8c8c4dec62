package balance

import (
	"testing"
	"time"

	"github.com/loomfabric/loom/overlay"
)

// New times count from the next packet on, and connections stay.
func TestConWeaveRetime(t *testing.T) {
	s := newSource(t, nil, 0, 1)
	if err := s.p.Retime(time.Millisecond, 5*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	request := s.send(0)
	if request.Opcode != overlay.OpRTTRequest {
		t.Fatalf("the first packet is %+v", request)
	}
	if f := s.send(900 * time.Microsecond); f.Tail {
		t.Error("rerouted before the new reply time")
	}
	if err := s.p.Retime(2*time.Millisecond, 5*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if f := s.send(200 * time.Microsecond); !f.Tail {
		t.Error("the request that was under way got another reply time")
	}
	if got := s.stats(); got.Epochs != 1 || got.Reroutes != 1 {
		t.Errorf("%d epochs, %d reroutes", got.Epochs, got.Reroutes)
	}
	s.send(5*time.Millisecond + 1)
	if got := s.stats(); got.Inactive != 1 {
		t.Error("a pause of the new inactive time did not end the epoch")
	}
	before := s.p.Params()
	if err := s.p.Retime(3*time.Millisecond, 2*time.Millisecond); err == nil || s.p.Params() != before {
		t.Errorf("a reply time above the inactive time: %v, %+v", err, s.p.Params())
	}
}
