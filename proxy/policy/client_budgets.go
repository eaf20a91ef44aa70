package policy

import (
	"fmt"
	"io"
	"iter"
	"math"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/internal/api"
)

const (
	// maxRetry is the longest Retry-After of a client that has exhausted a budget. A client that
	// retries before something is left is rejected again.
	maxRetry = time.Minute
	// chargeStep is the number of bytes of a response that are written before they are charged.
	chargeStep = 256 << 10
)

// ClientBudgets charges a request to the budgets of its client. The zero value has no budgets. It is not
// safe for concurrent use, except for SettleBytes.
type ClientBudgets struct {
	User            string  // the client's name
	requests, bytes *Budget // nil without one
	Cached          bool    // most-recent reads over the budgets are served from the cache
	granted         bool    // the request is paid, whatever is left later
	// Exceeded is the budget that is exhausted, Wait the time until something is left.
	Exceeded *Budget
	Wait     time.Duration
}

// ClientBudgetsOf finds the budgets of the client of a request, and whether a rule blocks it.
func (c *Compiled) ClientBudgetsOf(client user.Info, r *api.Request) (s ClientBudgets, blocked bool) {
	info := r.Info()
	if !r.PlainPath() {
		info = nil // the upstream may read the path as one of any resource
	}
	s.User = client.GetName()
	var settings Settings
	for i := range c.rules {
		rule := &c.rules[i]
		if !rule.matches(client, r.Header.Get("User-Agent"), info) {
			continue
		}
		settings.complete(&rule.settings)
		if b := rule.budgets; b != nil {
			setDefault(&s.requests, b.Requests)
			setDefault(&s.bytes, b.Bytes)
		}
	}
	s.Cached = settings.OverBudget == OverBudgetCached
	return s, settings.Block == Yes
}

// Waits returns the budgets of the client, each with the time until something is left of it, 0 if
// something is.
func (s *ClientBudgets) Waits() iter.Seq2[*Budget, time.Duration] {
	return func(yield func(*Budget, time.Duration) bool) {
		for _, b := range []*Budget{s.bytes, s.requests} {
			if b != nil && !yield(b, b.Wait(s.User)) {
				return
			}
		}
	}
}

// SameBytes reports whether both charge bytes to the same buckets.
func (s *ClientBudgets) SameBytes(other *ClientBudgets) bool { return s.bytes.Same(other.bytes) }

// Exceeds reports whether a budget is exhausted, and sets Exceeded and Wait. Otherwise it charges the
// requests.
func (s *ClientBudgets) Exceeds(requests float64) bool {
	for _, b := range [...]struct {
		*Budget
		amount float64
	}{{s.bytes, 0}, {s.requests, requests}} {
		if b.Budget == nil {
			continue
		}
		if wait := b.Take(s.User, b.amount); wait > 0 {
			s.Exceeded, s.Wait = b.Budget, wait
			return true
		}
	}
	return false
}

// MaySend reports whether the gateway may send requests to the upstream on behalf of the client. It
// charges the first one.
func (s *ClientBudgets) MaySend() bool {
	if s.granted || s.requests == nil && s.bytes == nil {
		return true
	}
	s.granted = !s.Exceeds(1)
	return s.granted
}

// Rejection returns the 429 of a client that has exhausted the budget Exceeded.
func (s *ClientBudgets) Rejection() error {
	b, wait := s.Exceeded, Seconds(s.Wait)
	return api.NewTooManyRequests(fmt.Sprintf(
		"user %q has exhausted the upstream budget of %s of kubeweir (%s: %d): retry in %d s, or read from the cache with resourceVersion=0",
		s.User, b.Rule.Name, b.Setting, b.PerSecond(), wait), min(wait, Seconds(maxRetry)))
}

// Settle charges the cost of the request, except for what MaySend has charged.
func (s *ClientBudgets) Settle(requests, bytes float64) {
	if s.granted {
		requests--
	}
	if s.requests != nil && requests != 0 {
		s.requests.Charge(s.User, requests)
	}
	s.SettleBytes(bytes)
}

// SettleBytes charges bytes.
func (s *ClientBudgets) SettleBytes(n float64) {
	if b := s.bytes; b != nil && n > 0 {
		b.Charge(s.User, n)
	}
}

// ChargeStream returns a function that charges the bytes of one second of a stream. It reports over if
// the stream alone exceeds the byte budget in that second, and nothing is left. ChargeStream returns
// nil if the client has no byte budget.
func (s *ClientBudgets) ChargeStream() func(bytes int64) (over bool) {
	b := s.bytes
	if b == nil {
		return nil
	}
	return func(n int64) bool {
		b.Charge(s.User, float64(n))
		return n > b.PerSecond() && b.Take(s.User, 0) > 0
	}
}

// ChargeBody charges the client's byte budget while the body of a forwarded response is written. It
// returns nil if the client has no byte budget or the body is in memory.
func (s *ClientBudgets) ChargeBody(resp *api.Response) *ChargedBody {
	if s.bytes == nil || resp.BodyTo == nil {
		return nil
	}
	b := &ChargedBody{from: resp.BodyTo, charge: s.SettleBytes}
	resp.BodyTo = b
	return b
}

// ChargedBody is a body that is charged in steps of chargeStep: a log may be followed for hours.
type ChargedBody struct {
	from   io.WriterTo
	charge func(bytes float64)
	to     io.Writer
	// written is the number of bytes written, charged that of those that were charged.
	written, charged int64
}

// Paid returns the number of charged bytes. b may be nil.
func (b *ChargedBody) Paid() int64 {
	if b == nil {
		return 0
	}
	return b.charged
}

// WriteTo implements io.WriterTo.
func (b *ChargedBody) WriteTo(w io.Writer) (int64, error) {
	b.to = w
	return b.from.WriteTo(b)
}

// Write implements io.Writer, for from.
func (b *ChargedBody) Write(p []byte) (int, error) {
	n, err := b.to.Write(p)
	b.written += int64(n)
	if more := b.written - b.charged; more >= chargeStep {
		b.charged = b.written
		b.charge(float64(more))
	}
	return n, err
}

// Seconds returns d as Retry-After has it: whole seconds, at least one.
func Seconds(d time.Duration) int { return max(1, int(math.Ceil(d.Seconds()))) }
