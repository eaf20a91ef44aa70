package upstream

import (
	"context"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"
)

// pulsePeriod is the least time between two measurements of the way.
const pulsePeriod = 5 * time.Second

// pulse measures for how long what the upstream sends is under way. On a slow link bytes
// queue up for half a minute and more, and every one of them is a sign of life; a small
// request on the connections of feeds waits its turn behind them. It is measured while
// somebody wants to know, one request at a time. It is safe for concurrent use.
type pulse struct {
	now func() time.Time
	// ask sends the request in a goroutine of its own and then calls ended.
	ask func()

	underWay atomic.Bool
	sent     atomic.Int64 // when the last one was, unix nanoseconds
	ending   atomic.Int64 // when that was answered or failed
	took     atomic.Int64 // the last one that was answered, nanoseconds
}

// delay is what was measured last, or for how long an answer has been waited for if that
// is more; 0 when nobody wanted to know lately.
func (p *pulse) delay() time.Duration {
	now, sent := p.now().UnixNano(), p.sent.Load()
	if p.underWay.Load() {
		return time.Duration(max(p.took.Load(), now-sent))
	}
	if now-sent >= int64(pulsePeriod) && p.underWay.CompareAndSwap(false, true) {
		if now-p.ending.Load() >= 3*int64(pulsePeriod) {
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
