package dataplane

// Await returns when each worker has come to its next round, for which one that sleeps is
// woken. It does not return while a worker is stuck, nor while one drains.
func (n *Node) Await() {
	for _, w := range n.workers {
		w.call(func() {})
	}
}
