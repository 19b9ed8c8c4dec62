package tcp

import "github.com/loomfabric/loom/sim/engine"

// Abort ends a connection at once, like closing a socket that does not linger: it
// drops what is still to be sent. [Done] is not called for its messages, and the
// network drops packets that are on their way. The connection must not be used
// afterwards.
func (c *Conn) Abort(now engine.Time) {
	if c.state != closed {
		c.stack.release(now, c)
	}
}
