package usage

// Cost is what somebody has cost.
type Cost struct {
	// Requests is how many there were, Refused how many of them kubeweir answered with 429.
	Requests, Refused int64
	// Bytes are those of bodies sent to clients, as they were sent.
	Bytes int64
	// UpstreamRequests and UpstreamBytes are what the upstream was asked for, and what was
	// sent to and received from it. Of a request that several share each has a part.
	UpstreamRequests, UpstreamBytes float64
	// Work is an estimate of the processor's time, in nanoseconds of the machine that the
	// prices were measured on (see Price); what it took here is found out for all together.
	Work float64
}

func (c *Cost) add(more *Cost) {
	c.Requests += more.Requests
	c.Refused += more.Refused
	c.Bytes += more.Bytes
	c.UpstreamRequests += more.UpstreamRequests
	c.UpstreamBytes += more.UpstreamBytes
	c.Work += more.Work
}

// What the weight of a cost counts besides the work: a request to the upstream as a millisecond,
// for it costs somebody's processor, too, and a byte as a nanosecond. What weighs much in any
// way is kept, whichever way a reader sorts by.
const (
	upstreamRequestWeight = 1e6
	upstreamByteWeight    = 1
	// requestWeight is the least that a request weighs, and more than half of what a cheap
	// one does: it bounds how many can be missing.
	requestWeight = 10e3
)

// weight says how much a cost counts when it is decided who is kept.
func (c *Cost) weight() float64 {
	return requestWeight*float64(c.Requests) + c.Work + upstreamRequestWeight*c.UpstreamRequests + upstreamByteWeight*c.UpstreamBytes
}

// Price says what a kind of request costs the processor, in nanoseconds.
type Price struct{ Request, Byte float64 }

// Of is the price of requests that sent so many bytes.
func (p Price) Of(requests, bytes int64) float64 {
	return p.Request*float64(requests) + p.Byte*float64(bytes)
}
