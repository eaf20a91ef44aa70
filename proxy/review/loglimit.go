package review

import (
	"sync/atomic"
	"time"
)

// complainEvery is how often at most the log is told of something that every request
// may meet.
const complainEvery = 10 * time.Second

// LogLimit is one thing that the log is told of. It is safe for concurrent use.
type LogLimit struct{ next atomic.Int64 } // unix nanoseconds

// Allow reports whether to tell it now.
func (c *LogLimit) Allow() bool {
	now := time.Now().UnixNano()
	next := c.next.Load()
	return now >= next && c.next.CompareAndSwap(next, now+int64(complainEvery))
}
