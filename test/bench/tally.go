package bench

import (
	"context"
	"errors"
	"slices"
	"time"
)

// A tally is what was measured of one server in a row, over all its slices.
type tally struct {
	count     int64 // units: requests, pages, deliveries, events
	bytes     int64
	cpu       time.Duration // all that the server used, of all processes that count
	own       time.Duration // what its own process used
	deducted  time.Duration // of it, what writes would have cost anyway
	wall      time.Duration
	latencies []time.Duration // of single units, in no order
	closed    int64           // watches that the server ended
	short     int64           // deliveries that never came
}

func (t *tally) add(u tally) {
	t.count += u.count
	t.bytes += u.bytes
	t.cpu += u.cpu
	t.own += u.own
	t.deducted += u.deducted
	t.wall += u.wall
	t.latencies = append(t.latencies, u.latencies...)
	t.closed += u.closed
	t.short += u.short
}

// percentile is a latency that the share p of all does not exceed, 0 without any.
func percentile(latencies []time.Duration, p float64) time.Duration {
	if len(latencies) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(latencies))
	return sorted[min(len(sorted)-1, int(p*float64(len(sorted))))]
}

// limits say when a slice ends: at the first request after which the server has used the processor for so long, and
// no fewer requests were made. With wall it is that much time instead.
type limits struct {
	cpu      time.Duration
	requests int
	wall     time.Duration
}

// checkPeriod is how often a slice looks at the server's processor time.
const checkPeriod = 10 * time.Millisecond

// slice calls step, which makes one request, until the limits are reached.
func slice(ctx context.Context, s *server, lim limits, step func() (response, error)) (tally, error) {
	var t tally
	if err := quiet(ctx, s.pids...); err != nil {
		return t, err
	}
	return sliceNow(ctx, s, lim, step)
}

// sliceNow is slice of a server that never rests.
func sliceNow(ctx context.Context, s *server, lim limits, step func() (response, error)) (tally, error) {
	var t tally
	before, err := cpuTime(s.pids...)
	if err != nil {
		return t, err
	}
	own, err := cpuTime(s.pid)
	if err != nil {
		return t, err
	}
	begin := time.Now()
	checked := begin
	for at := begin; ; {
		r, err := step()
		if err != nil {
			return t, err
		}
		now := time.Now()
		t.latencies = append(t.latencies, now.Sub(at))
		t.bytes += r.bytes
		t.count++
		at = now
		if int(t.count) < lim.requests || now.Sub(checked) < checkPeriod {
			continue
		}
		checked = now
		used, err := cpuTime(s.pids...)
		if err != nil {
			return t, err
		}
		if lim.wall > 0 && now.Sub(begin) >= lim.wall || lim.wall == 0 && used-before >= lim.cpu {
			t.cpu, t.wall = used-before, now.Sub(begin)
			ownNow, err := cpuTime(s.pid)
			t.own = ownNow - own
			return t, errors.Join(err, ctx.Err())
		}
	}
}
