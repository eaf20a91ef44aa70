package identity

import (
	"sync/atomic"
	"time"
)

// complainEvery is how often at most the log is told of something that every request
// may meet.
const complainEvery = 10 * time.Second

// complaint is one thing that the log is told of. It is safe for concurrent use.
type complaint struct{ next atomic.Int64 } // unix nanoseconds

// due reports whether to tell it now.
func (c *complaint) due() bool {
	now := time.Now().UnixNano()
	next := c.next.Load()
	return now >= next && c.next.CompareAndSwap(next, now+int64(complainEvery))
}
