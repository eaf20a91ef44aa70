package policy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/internal/gaugefunc"
	"github.com/kubeweir/kubeweir/proxy/usage"
)

const (
	// maxBlocked bounds the patterns, because every request is compared with each; maxPattern is the
	// maximum length of a pattern in bytes.
	maxBlocked = 64
	maxPattern = 256
	// BlockedRetry is the longest Retry-After of a blocked client.
	BlockedRetry = time.Minute
)

// Blocked holds the user agents that all gateways of a process reject at present: a switch for
// operators, for the case that a program sends too many requests. Requests are rejected with 429 and
// Retry-After before they are authenticated, and open streams end within seconds. The status is not
// 403, because the client's permissions are unchanged: after a 403 it may give up, log its user out
// or undo its work, whereas after a 429 it retries. A client chooses its user agent, so this is no
// access control.
//
// Blocked user agents are not kept over a restart. Blocked is safe for concurrent use; a nil *Blocked
// blocks nothing.
type Blocked struct {
	now  func() time.Time
	mu   sync.Mutex // held by writers of list
	list atomic.Pointer[[]*blockedAgent]
}

// BlockedAgent describes a pattern that is blocked.
type BlockedAgent struct {
	// Pattern matches user agents; "*" stands for any run of characters.
	Pattern string    `json:"userAgent"`
	Since   time.Time `json:"since"`
	Until   time.Time `json:"until,omitzero"` // zero for a pattern that is blocked until Unblock
	// Rejected is how many requests were rejected.
	Rejected int64 `json:"rejected"`
}

// blockedAgent is a pattern of user agents. It is immutable, except for the counter.
type blockedAgent struct {
	pattern      string
	glob         glob
	since, until time.Time // see BlockedAgent
	rejected     *atomic.Int64
}

// NewBlocked returns a Blocked without user agents. registerer may be nil.
func NewBlocked(registerer prometheus.Registerer) *Blocked {
	b := &Blocked{now: time.Now}
	b.list.Store(new([]*blockedAgent))
	gaugefunc.Register(registerer, "kubeweir_blocked_user_agents",
		"User agent patterns currently blocked by an operator; at most 64.", func() int { return len(b.List()) })
	return b
}

// Block blocks user agents that match pattern, in which "*" stands for any run of characters, until
// the given time or, if that is zero, until Unblock. If the pattern is blocked already, only the time
// changes. An error says what is wrong with the arguments.
func (b *Blocked) Block(pattern string, until time.Time) error {
	now := b.now()
	switch {
	case strings.Trim(pattern, "*") == "":
		return errors.New("the user agent must be named; what is empty, or matches everybody, cannot be blocked")
	case len(pattern) > maxPattern:
		return fmt.Errorf("the user agent must have at most %d bytes, not %d", maxPattern, len(pattern))
	case strings.ContainsFunc(pattern, func(r rune) bool { return r == unicode.ReplacementChar || !unicode.IsPrint(r) }):
		return errors.New("the user agent must be of printable characters")
	case !until.IsZero() && !until.After(now):
		return errors.New("the time until which the user agent is blocked is over")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	next := &blockedAgent{pattern: strings.Clone(pattern), since: now, until: until, rejected: new(atomic.Int64)}
	next.glob = globs([]string{next.pattern})[0]
	list := b.current(now)
	if i := slices.IndexFunc(list, func(a *blockedAgent) bool { return a.pattern == pattern }); i >= 0 {
		next.since, next.rejected = list[i].since, list[i].rejected
		list[i] = next
	} else if len(list) >= maxBlocked {
		return fmt.Errorf("%d user agents are blocked already, which is the most; unblock one, or use a pattern such as \"k9s*\"", maxBlocked)
	} else {
		list = append(list, next)
	}
	b.list.Store(&list)
	return nil
}

// Unblock removes a pattern. It reports whether the pattern was blocked.
func (b *Blocked) Unblock(pattern string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := b.current(b.now())
	left := slices.DeleteFunc(list, func(a *blockedAgent) bool { return a.pattern == pattern })
	b.list.Store(&left)
	return len(left) < len(list)
}

// List returns the patterns, the oldest first.
func (b *Blocked) List() []BlockedAgent {
	out := []BlockedAgent{}
	for _, a := range b.current(b.now()) {
		out = append(out, BlockedAgent{a.pattern, a.since, a.until, a.rejected.Load()})
	}
	slices.SortStableFunc(out, func(a, b BlockedAgent) int {
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.Pattern, b.Pattern))
	})
	return out
}

// Find returns the pattern by which a user agent is blocked; ok is false if it is not.
func (b *Blocked) Find(userAgent string) (pattern string, ok bool) {
	if a := b.find(userAgent); a != nil {
		return a.pattern, true
	}
	return "", false
}

// Reject counts a request of a user agent that is blocked, and returns the time until it may retry. ok
// is false if the user agent is not blocked.
func (b *Blocked) Reject(userAgent string) (pattern string, retry time.Duration, ok bool) {
	a := b.find(userAgent)
	if a == nil {
		return "", 0, false
	}
	a.rejected.Add(1)
	if retry = BlockedRetry; !a.until.IsZero() {
		retry = min(retry, a.until.Sub(b.now()))
	}
	return a.pattern, retry, true
}

// find returns the pattern by which a user agent is blocked, nil if it is not.
func (b *Blocked) find(userAgent string) *blockedAgent {
	if b == nil {
		return nil
	}
	list := *b.list.Load()
	if len(list) == 0 {
		return nil
	}
	// The console shows operators the bounded user agent.
	bounded := usage.Bounded(userAgent)
	now := b.now()
	for _, a := range list {
		if (a.glob.matches(userAgent) || a.glob.matches(bounded)) && !a.isExpired(now) {
			return a
		}
	}
	return nil
}

// current returns a copy of the list without patterns that have expired.
func (b *Blocked) current(now time.Time) []*blockedAgent {
	return slices.DeleteFunc(slices.Clone(*b.list.Load()), func(a *blockedAgent) bool { return a.isExpired(now) })
}

func (a *blockedAgent) isExpired(now time.Time) bool {
	return !a.until.IsZero() && !now.Before(a.until)
}
