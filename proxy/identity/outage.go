package identity

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
)

// Where an offline time is configured, a request must not wait for an upstream
// that is not there when there is an older answer to fall back on.
const (
	// staleWait is how long the upstream may take for an answer that an older one
	// can stand in for.
	staleWait = 2 * time.Second
	// outagePause is how long the older answers then count without asking: all of them in
	// an outage, else the one to that question.
	outagePause = 5 * time.Second
)

var errSlow = fmt.Errorf("%w in time", ErrUnavailable)

// outage remembers that the upstream could not be asked. It is safe for
// concurrent use.
type outage struct {
	// reachable tells whether the upstream can be reached, as far as is known; nil if
	// nobody knows.
	reachable func() bool
	next      atomic.Int64 // when to ask again, on the cache's clock; 0 without an outage
	away      atomic.Bool  // it could not be reached when it was asked last
}

// ask tells a request that has an older answer whether to ask the upstream all
// the same. In an outage one does every outagePause, and everybody once the upstream can
// be reached again.
func (o *outage) ask(now int64) bool {
	next := o.next.Load()
	if next != 0 && o.away.Load() && o.reachable() {
		o.end()
		return true
	}
	return next == 0 || now >= next && o.next.CompareAndSwap(next, now+int64(outagePause))
}

// begin records that the upstream could not be asked. It is no outage, and false, while the
// upstream is known to be reachable: one question that it takes its time for, which somebody
// may have chosen, must not have everybody else known by older answers.
func (o *outage) begin(now int64) bool {
	away := o.reachable != nil && !o.reachable()
	if o.reachable != nil && !away {
		return false
	}
	o.away.Store(away)
	o.next.Store(now + int64(outagePause))
	return true
}

func (o *outage) end() {
	if o.next.Load() != 0 {
		o.next.Store(0)
	}
}

// reviewTimeout returns ctx limited to what an answer of the upstream may take: most, or
// staleWait when there is an older answer. A review that is under way already, and
// is waited for before the next can begin, counts.
func reviewTimeout(ctx context.Context, stale bool, most time.Duration) (context.Context, context.CancelFunc) {
	if stale {
		most = min(most, staleWait)
	}
	return context.WithTimeoutCause(ctx, most, errSlow)
}

// expiryOf is when a token expires that is a JSON Web Token and says so, the zero time for
// others. It is believed of tokens that the upstream has accepted.
func expiryOf(token string) time.Time {
	_, rest, _ := strings.Cut(token, ".")
	payload, _, ok := strings.Cut(rest, ".")
	if !ok {
		return time.Time{}
	}
	text, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		return time.Time{}
	}
	var claims struct {
		Expiry float64 `json:"exp"`
	}
	if json.Unmarshal(text, &claims) != nil || claims.Expiry <= 0 {
		return time.Time{}
	}
	return time.Unix(int64(claims.Expiry), 0)
}
