package cache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/cache/reflector"
	"github.com/kubeweir/kubeweir/cache/selfcheck"
	"github.com/kubeweir/kubeweir/cache/store"
)

// checkShare bounds the share of time that periodic checks take: after a check that took t, the
// next one begins no sooner than checkShare times t.
const checkShare = 19

var (
	errIncomplete = errors.New("the collection is not synced yet")
	errStaleNow   = errors.New("the collection is stale: the upstream is unreachable")
)

// Check compares the chosen collections with the upstream, one after the other, ordered by resource
// and encoding. A collection that differs is stopped and filled again.
func (m *Manager) Check(ctx context.Context, which func(schema.GroupVersionResource) bool) []*selfcheck.Report {
	var all []*selfcheck.Report
	for _, e := range m.entries() {
		if ctx.Err() == nil && which(e.feed.Resource.GroupVersionResource) {
			all = append(all, m.check(ctx, e))
		}
	}
	return all
}

// check checks one collection and refills it if it differs.
func (m *Manager) check(ctx context.Context, e *entry) *selfcheck.Report {
	out := m.compared(ctx, e)
	out.At = time.Now()
	e.lastCheck.Store(out)
	e.metrics.checks.WithLabelValues(out.Result.String()).Inc()
	log := e.feed.Log.With("resourceVersion", out.RV, "objects", out.Objects, "sampled", out.Sampled, "seconds", out.Took.Seconds())
	switch out.Result {
	case selfcheck.Same:
		log.Debug("collection equals the upstream")
		e.checked.Store(time.Now().UnixNano())
	case selfcheck.Unfinished:
		log.Debug("collection not compared with the upstream", "error", out.Err)
	case selfcheck.Differs:
		for _, d := range out.Differences {
			e.feed.Log.Error("cached object differs from the upstream", "key", d.Key, "difference", d.Kind.String(), "cached", d.Cached, "upstream", d.Upstream)
			e.metrics.differences.WithLabelValues(d.Kind.String()).Inc()
		}
		log.Error("collection differs from the upstream, relisting", "differences", out.Differing)
		m.stop(store.ErrDiffers, func(other *entry) bool { return other == e })
		if next, err := m.find(e.feed.Resource, e.feed.Encoding); err == nil {
			next.lastCheck.Store(out) // the result is shown with the new collection
		}
	}
	return out
}

// compared compares a collection with the upstream. Only one comparison runs at a time.
func (m *Manager) compared(ctx context.Context, e *entry) *selfcheck.Report {
	out := &selfcheck.Report{Resource: e.feed.Resource.GroupVersionResource, Encoding: e.feed.Encoding}
	select {
	case m.checking <- struct{}{}:
		defer func() { <-m.checking }()
	case <-ctx.Done():
		out.Err = context.Cause(ctx)
		return out
	}
	e.lookedAt.Store(time.Now().UnixNano())
	c := e.current()
	if c == nil {
		out.Err = cmp.Or(e.reason(), errIncomplete)
		return out
	}
	if state := c.State(); state.Phase == reflector.Stale {
		out.Err = fmt.Errorf("%w: %v", errStaleNow, state.Err)
		return out
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer context.AfterFunc(e.ctx, func() { cancel(context.Cause(e.ctx)) })()
	defer cancel(nil)
	return selfcheck.Compare(ctx, e.feed, c.store, c.checker)
}

// checkAll checks each collection once per period, one at a time and spread over the period, until
// the Manager is closed.
func (m *Manager) checkAll(period time.Duration) {
	var took time.Duration
	for {
		pause := period / time.Duration(max(1, len(m.entries())))
		pause = pause/2 + time.Duration(rand.Int64N(max(1, int64(pause))))
		select {
		case <-time.After(max(pause, checkShare*took)):
		case <-m.ctx.Done():
			return
		}
		took = 0
		if e := m.nextCheck(time.Now().Add(-period / 2)); e != nil {
			took = m.check(m.ctx, e).Took
		}
	}
}

// nextCheck returns the collection that was not checked for the longest time, or nil if all were
// checked after before.
func (m *Manager) nextCheck(before time.Time) *entry {
	var next *entry
	for _, e := range m.entries() {
		if at := e.lookedAt.Load(); at < before.UnixNano() && (next == nil || at < next.lookedAt.Load()) {
			next = e
		}
	}
	return next
}
