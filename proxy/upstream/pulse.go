package upstream

import (
	"context"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"
)

const (
	// pulsePeriod is the least time between two measurements of the way, and how often it
	// is measured while somebody wants to know.
	pulsePeriod = time.Second
	// pulseIdle is how often it is measured while nobody does, so that who then comes is
	// told at once.
	pulseIdle = 5 * time.Second
	// pulseMemory is how long a measurement says something.
	pulseMemory = 15 * time.Second
)

// farAfter is from which delay on the upstream is far: a new connection is then worth
// avoiding.
const farAfter = 200 * time.Millisecond

// far reports whether the upstream is, by what was measured last.
func (c *Client) far() bool { return c.pulse.measured() >= farAfter }

// pulse measures for how long what the upstream sends is under way. On a slow link bytes
// queue up for half a minute and more, and every one of them is a sign of life; a small
// request on the connections of feeds waits its turn behind them. It is measured by one
// request at a time. It is safe for concurrent use.
//
// It is the way that is measured, not the server: what a kube-apiserver's watch cache is
// behind its store cannot be known from outside, for events have no time of their own, and
// the clocks of objects are other machines'.
type pulse struct {
	now func() time.Time
	// ask sends the request in a goroutine of its own and then calls ended.
	ask func()

	underWay atomic.Bool
	sent     atomic.Int64 // when the last one was, unix nanoseconds
	ending   atomic.Int64 // when that was answered or failed
	took     atomic.Int64 // the last one that was answered, nanoseconds
}

// measured is what was measured last, or for how long an answer has been waited for if
// that is more.
func (p *pulse) measured() time.Duration {
	if p.underWay.Load() {
		return time.Duration(max(p.took.Load(), p.now().UnixNano()-p.sent.Load()))
	}
	return time.Duration(p.took.Load())
}

// delay is measured, and sees to it that there is a measurement.
func (p *pulse) delay() time.Duration {
	if p.underWay.Load() {
		return p.measured()
	}
	now, sent := p.now().UnixNano(), p.sent.Load()
	if now-sent >= int64(pulsePeriod) && p.underWay.CompareAndSwap(false, true) {
		if now-p.ending.Load() >= int64(pulseMemory) {
			p.took.Store(0)
		}
		p.sent.Store(now)
		p.ask()
	}
	return time.Duration(p.took.Load())
}

// ended records the end of the request. One that failed says nothing.
func (p *pulse) ended(answered bool) {
	now := p.now().UnixNano()
	if answered {
		p.took.Store(now - p.sent.Load())
	}
	p.ending.Store(now)
	p.underWay.Store(false)
}

// keep measures while there are connections of feeds.
func (p *pulse) keep(ctx context.Context, contacts *contacts) {
	tick := time.NewTicker(pulseIdle)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if contacts.connections() > 0 {
			p.delay()
		}
	}
}

// sendPulse asks for the options of the server as a whole (RFC 9110, 9.3.7): Go's answers
// that before authentication, priority and fairness. Any answer will do.
func (c *Client) sendPulse() {
	if !c.spawn(c.takePulse) {
		c.pulse.ended(false)
	}
}

func (c *Client) takePulse() {
	ctx, cancel := context.WithTimeout(c.ctx, c.limits.RequestTimeout)
	defer cancel()
	ctx = c.ownSends().trace(ctx, func(error) { cancel() })
	req := (&http.Request{
		Method: http.MethodOptions, URL: &url.URL{Scheme: c.base.Scheme, Host: c.base.Host, Opaque: "*"}, Host: c.base.Host,
		Header: http.Header{"User-Agent": {c.agent}},
	}).WithContext(ctx)
	resp, err := c.feed.RoundTrip(req)
	if err == nil {
		_ = resp.Body.Close()
	}
	c.pulse.ended(err == nil)
}
