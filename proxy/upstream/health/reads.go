package health

import (
	"sync/atomic"
	"time"
)

// waitTime is for how long a read must wait to tell that there was nothing to be read.
const waitTime = time.Millisecond

// Reads tells when the reader of a connection, or of a body, has read all that there was. One
// goroutine reads, others may ask.
type Reads struct {
	now   clock
	began atomic.Int64 // of the read that is in progress, in nanoseconds; 0: none
	ended atomic.Int64 // of the last one that waited
}

func (r *Reads) begin() { r.began.Store(r.now.nanos()) }

func (r *Reads) end() {
	now := r.now.nanos()
	if now-r.began.Load() >= int64(waitTime) {
		r.ended.Store(now)
	}
	r.began.Store(0)
}

// waited reports whether there was, since then, nothing to be read.
func (r *Reads) waited(then, now int64) bool {
	began := r.began.Load()
	return r.ended.Load() > then || began != 0 && now-began >= int64(waitTime)
}
