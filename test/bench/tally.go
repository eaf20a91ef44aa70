package bench

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// A tally holds what was measured of one server in a row, over all its slices.
type tally struct {
	count     int64 // units: requests, pages, deliveries, events
	bytes     int64
	cpu       time.Duration // used by all processes that count
	own       time.Duration // used by the server's own process
	deducted  time.Duration // subtracted from cpu: the cost of the writes themselves
	wall      time.Duration
	latencies []time.Duration // of single units, in no order
	closed    int64           // watches that the server ended
	short     int64           // deliveries that never arrived
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

// percentile returns the latency that the share p of all latencies does not exceed, or 0 if there
// are none.
func percentile(latencies []time.Duration, p float64) time.Duration {
	if len(latencies) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(latencies))
	return sorted[min(len(sorted)-1, int(p*float64(len(sorted))))]
}

// limits determine when a slice ends: at the first request after which the server has used cpu of
// processor time and at least requests requests were sent. If wall is set, the slice lasts that
// long instead.
type limits struct {
	cpu      time.Duration
	requests int
	wall     time.Duration
	// exactly means exactly requests requests, one at a time.
	exactly bool
	// cycle is the number of different requests; the slice sends each of them equally often. Zero
	// means one.
	cycle int
	// inFlight is how many requests are in flight at a time; zero means one.
	inFlight int
}

// checkPeriod is how often a slice reads the server's processor time.
const checkPeriod = 10 * time.Millisecond

// sliceNow repeats an exchange until the limits are reached, without waiting for the server to be
// idle first.
func sliceNow(ctx context.Context, s *server, lim limits, e exchange) (tally, error) {
	var t tally
	before, err := realkube.CPUTime(s.pids...)
	if err != nil {
		return t, err
	}
	own, err := realkube.CPUTime(s.pid)
	if err != nil {
		return t, err
	}
	begin := time.Now()
	checked := begin
	enough := func() (bool, error) {
		now := time.Now()
		if done := int(t.count); lim.exactly || done < lim.requests || now.Sub(checked) < checkPeriod || (done+max(1, lim.inFlight)-1)%max(1, lim.cycle) > 0 {
			return lim.exactly && done >= lim.requests, nil
		}
		checked = now
		used, err := realkube.CPUTime(s.pids...)
		return lim.wall > 0 && now.Sub(begin) >= lim.wall || lim.wall == 0 && used-before >= lim.cpu, err
	}
	if err := t.exchanges(e, lim, enough); err != nil {
		return t, err
	}
	after, err := realkube.CPUTime(s.pids...)
	ownAfter, err2 := realkube.CPUTime(s.pid)
	t.cpu, t.own, t.wall = after-before, ownAfter-own, time.Since(begin)
	return t, errors.Join(err, err2, ctx.Err())
}

// exchanges keeps requests in flight until there are enough responses, and then receives the
// remaining ones.
func (t *tally) exchanges(e exchange, lim limits, enough func() (bool, error)) error {
	ending := false
	for begun, wanted := 0, max(1, lim.inFlight); ; {
		for !ending && begun < wanted {
			if err := e.begin(); err != nil {
				return err
			}
			begun++
		}
		if begun == 0 {
			return nil
		}
		r, err := e.end()
		if err != nil {
			return err
		}
		begun--
		t.latencies = append(t.latencies, r.took)
		t.bytes += r.bytes
		t.count++
		if !ending {
			if ending, err = enough(); err != nil {
				return err
			}
		}
	}
}
