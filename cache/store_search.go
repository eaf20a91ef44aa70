package cache

import "context"

// search is a read's way through objects, of which there may be very many, and each
// of which may cost what a client has chosen: it ends soon after the client has left.
type search struct {
	ctx   context.Context
	seen  int
	ended bool
}

// newSearch returns the search of a request whose context is ctx.
func newSearch(ctx context.Context) search { return search{ctx: ctx} }

// searchStep is the number of objects between two looks at the context.
const searchStep = 512

// abandoned is asked at each object, and tells whether to leave it.
func (s *search) abandoned() bool {
	if s.seen++; s.seen%searchStep == 0 && s.ctx.Err() != nil {
		s.ended = true
	}
	return s.ended
}
