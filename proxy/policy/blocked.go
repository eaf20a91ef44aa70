package policy

import (
	"cmp"
	"errors"
	"fmt"
	"math"
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

// Blocked are the user agents that are refused at present, by all gateways of a process: a
// switch for whoever runs them, when one program asks for too much. Requests are answered 429
// with Retry-After, before it is asked whose they are, and what is open ends within seconds.
// It is not 403: the rights of those clients are what they were, and a client that is told
// otherwise may give up, log its user out, or undo what it has done, where one that is to come
// back does. A client chooses what it calls itself; whom nothing else stops, the upstream's
// permissions do.
//
// Nothing is kept over a restart. It is safe for concurrent use.
type Blocked struct {
	now  func() time.Time
	mu   sync.Mutex // for changes
	list atomic.Pointer[[]*blockedAgent]
}

// blockedAgent is a pattern of user agents.
type blockedAgent struct {
	pattern string
	glob    glob
	since   time.Time
	until   time.Time // zero: for good
	refused *atomic.Int64
}

// BlockedAgent is what List tells of a pattern.
type BlockedAgent struct {
	// Pattern is a user agent; "*" stands for any run of characters.
	Pattern      string
	Since, Until time.Time // Until is zero for what stays until Unblock
	// Refused is how many requests were.
	Refused int64
}

const (
	// maxBlocked bounds the patterns, each of which every request is compared with, and
	// maxPattern their length in bytes.
	maxBlocked = 64
	maxPattern = 256
	// BlockedRetry is when a client that is blocked is asked to come back at the latest.
	BlockedRetry = time.Minute
)

// NewBlocked returns a list of nobody. registerer may be nil.
func NewBlocked(registerer prometheus.Registerer) *Blocked {
	b := &Blocked{now: time.Now}
	b.list.Store(new([]*blockedAgent))
	if registerer != nil {
		registerer.MustRegister(gaugefunc.New(prometheus.GaugeOpts{
			Name: "kubeweir_blocked_user_agents",
			Help: "User agent patterns that an operator has blocked at present, 64 at most.",
		}, func() float64 { return float64(len(b.List())) }))
	}
	return b
}

// Block has user agents refused that match pattern, in which "*" stands for any run of
// characters, until then, or until Unblock if that is zero. For a pattern that is there
// already the time is what changes. An error says what is wrong with the arguments.
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
	next := &blockedAgent{pattern: strings.Clone(pattern), since: now, until: until, refused: new(atomic.Int64)}
	next.glob = globs([]string{next.pattern})[0]
	list := b.current(now)
	if i := slices.IndexFunc(list, func(a *blockedAgent) bool { return a.pattern == pattern }); i >= 0 {
		next.since, next.refused = list[i].since, list[i].refused
		list[i] = next
	} else if len(list) >= maxBlocked {
		return fmt.Errorf("%d user agents are blocked already, which is the most; unblock one, or use a pattern such as \"k9s*\"", maxBlocked)
	} else {
		list = append(list, next)
	}
	b.list.Store(&list)
	return nil
}

// Unblock lets the user agents of a pattern in again; false if it was not there.
func (b *Blocked) Unblock(pattern string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := b.current(b.now())
	left := slices.DeleteFunc(list, func(a *blockedAgent) bool { return a.pattern == pattern })
	b.list.Store(&left)
	return len(left) < len(list)
}

// List tells who is blocked, the oldest first.
func (b *Blocked) List() []BlockedAgent {
	out := []BlockedAgent{}
	for _, a := range b.current(b.now()) {
		out = append(out, BlockedAgent{a.pattern, a.since, a.until, a.refused.Load()})
	}
	slices.SortStableFunc(out, func(a, b BlockedAgent) int {
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.Pattern, b.Pattern))
	})
	return out
}

// current is a copy of what counts at a time.
func (b *Blocked) current(now time.Time) []*blockedAgent {
	return slices.DeleteFunc(slices.Clone(*b.list.Load()), func(a *blockedAgent) bool { return a.over(now) })
}

func (a *blockedAgent) over(now time.Time) bool { return !a.until.IsZero() && !now.Before(a.until) }

// Find returns the pattern by which a user agent is blocked; ok is false if it is not.
func (b *Blocked) Find(userAgent string) (pattern string, ok bool) {
	if a := b.find(userAgent); a != nil {
		return a.pattern, true
	}
	return "", false
}

// Refuse counts a request of a user agent that is blocked by pattern, and returns when it may come
// back.
func (b *Blocked) Refuse(userAgent string) (pattern string, retry time.Duration, ok bool) {
	a := b.find(userAgent)
	if a == nil {
		return "", 0, false
	}
	a.refused.Add(1)
	if retry = BlockedRetry; !a.until.IsZero() {
		retry = min(retry, a.until.Sub(b.now()))
	}
	return a.pattern, retry, true
}

// find is by what a user agent is blocked, nil if it is not.
func (b *Blocked) find(userAgent string) *blockedAgent {
	if b == nil {
		return nil
	}
	list := *b.list.Load()
	if len(list) == 0 {
		return nil
	}
	// An operator may have seen it by a bounded name.
	bounded := usage.Bounded(userAgent)
	now := b.now()
	for _, a := range list {
		if (a.glob.matches(userAgent) || a.glob.matches(bounded)) && !a.over(now) {
			return a
		}
	}
	return nil
}

// Seconds is a time for Retry-After: whole seconds, at least one.
func Seconds(d time.Duration) int { return max(1, int(math.Ceil(d.Seconds()))) }
