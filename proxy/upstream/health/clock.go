package health

import "time"

// clock is a monotonic clock: if the time of day is set, nothing seems to be silent, or to be heard
// later than it was.
type clock func() time.Time

func newClock() clock {
	begun := time.Now()
	return func() time.Time { return begun.Add(time.Since(begun)) }
}

// nanos returns the time in nanoseconds.
func (c clock) nanos() int64 { return c().UnixNano() }

// at returns the time of the clock that is nanos, which has a monotonic reading, unlike that of
// time.Unix. It is zero for 0.
func (c clock) at(nanos int64) time.Time {
	if nanos == 0 {
		return time.Time{}
	}
	now := c()
	return now.Add(time.Duration(nanos - now.UnixNano()))
}
