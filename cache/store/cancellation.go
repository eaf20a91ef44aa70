package store

import "context"

// Cancellation stops a scan of many objects soon after the client has left. The cost of a scan is
// chosen by clients: by the size of a collection and by their selectors. It belongs to one
// goroutine.
type Cancellation struct {
	ctx  context.Context
	seen int
	Seen bool
}

// NewCancellation returns the Cancellation of a request with the context ctx.
func NewCancellation(ctx context.Context) Cancellation { return Cancellation{ctx: ctx} }

// cancellationInterval is how many objects are visited between two looks at the context.
const cancellationInterval = 512

// Requested is called for each object and reports whether the scan must stop. Once it has, Seen is
// true.
func (c *Cancellation) Requested() bool {
	if c.seen++; c.seen%cancellationInterval == 0 && c.ctx.Err() != nil {
		c.Seen = true
	}
	return c.Seen
}
