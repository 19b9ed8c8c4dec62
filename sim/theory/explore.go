package theory

// ExploringShare returns what exploring costs at a leaf: the bytes of requests over the
// bytes of data (TCP-Path §V-D.2, Equation 3), in a fabric whose spines flood. Every flow
// explores with a request of so many bytes and has so many bytes of data. The fabric has
// at least two leaves.
func ExploringShare(spines, leaves int, request, flow float64) float64 {
	return float64(spines) * float64(leaves-1) / 2 * request / flow
}
