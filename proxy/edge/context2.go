package edge

// servedContext is the context of an HTTP/2 request. Who asks for Done is going to wait, so
// that the connection is read by another goroutine from then on.
type servedContext struct {
	requestContext
	// reads is the connection that is not read while the request is served, in turn.
	reads *http2Conn
	turn  uint64
}

// Done implements context.Context.
func (r *servedContext) Done() <-chan struct{} {
	done, first := r.start()
	if first && r.reads != nil {
		r.reads.stepIn(r.turn)
	}
	return done
}
