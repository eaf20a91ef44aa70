package store

import "context"

// Cancellation is a read's way through objects, of which there may be very many, and each
// of which may cost what a client has chosen: it ends soon after the client has left.
type Cancellation struct {
	ctx  context.Context
	seen int
	Seen bool
}

// NewCancellation returns the search of a request whose context is ctx.
func NewCancellation(ctx context.Context) Cancellation { return Cancellation{ctx: ctx} }

// searchStep is the number of objects between two looks at the context.
const searchStep = 512

// Requested is asked at each object, and tells whether to leave it.
func (s *Cancellation) Requested() bool {
	if s.seen++; s.seen%searchStep == 0 && s.ctx.Err() != nil {
		s.Seen = true
	}
	return s.Seen
}
