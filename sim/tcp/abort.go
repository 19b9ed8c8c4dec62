package tcp

import "github.com/loomfabric/loom/sim/engine"

// Abort ends a connection at once, whatever it has still to send, as closing a
// socket that does not linger. Nobody is told that its messages are complete;
// packets on their way are the network's to drop. It must not be used afterwards.
func (c *Conn) Abort(now engine.Time) {
	if c.state != closed {
		c.stack.release(now, c)
	}
}
