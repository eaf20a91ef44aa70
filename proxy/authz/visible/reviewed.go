package visible

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/kubeweir/kubeweir/proxy/authz"
)

const (
	// spreadOver is the part of their lifetime over which reviews made together are spread.
	spreadOver = 4
	// retryDenied is when a namespace is reviewed again that the RBAC objects grant and the upstream
	// denied soon after a change: its authorizer may lag behind.
	retryDenied = authz.Settle / 2
)

// terms determine how long reviews count.
type terms struct {
	allowed, denied time.Duration
	// paced is true if no caller waits for the result: the reviews of a set are then spread over
	// time, at most rechecksPerSecond.
	paced bool
}

// lifetime is how long the reviews of some namespaces count; spread is by how much less the last one
// counts.
type lifetime struct{ whole, spread time.Duration }

const forever = 1 << 62

func (t terms) ofAllowed() lifetime {
	l := lifetime{whole: t.allowed}
	if t.paced {
		l.spread = t.allowed / spreadOver
	}
	return l
}

func (t terms) ofDenied(unsettled bool) lifetime {
	if unsettled {
		return lifetime{whole: min(t.denied, retryDenied)}
	}
	return lifetime{whole: t.denied}
}

// reviewed are namespaces and when they were reviewed.
type reviewed struct {
	names []string       // in order
	at    []atomic.Int64 // when the review began, by the Authorizer's clock
}

func (r *reviewed) add(name string, at int64) {
	r.names = append(r.names, name)
	r.at = append(r.at, atomic.Int64{})
	r.at[len(r.at)-1].Store(at)
}

func (r *reviewed) equal(other *reviewed) bool { return slices.Equal(r.names, other.names) }

// renew takes over the times of the same names if they are later.
func (r *reviewed) renew(by *reviewed) {
	for i := range r.at {
		r.at[i].Store(max(r.at[i].Load(), by.at[i].Load()))
	}
}

// step is by how much the lifetime of each is shorter than that of the one before.
func (r *reviewed) step(l lifetime) int64 { return int64(l.spread) / int64(max(1, len(r.at))) }

// nextDue returns the time until one is due.
func (r *reviewed) nextDue(now int64, l lifetime) time.Duration {
	first, step := now, r.step(l)
	for i := range r.at {
		first = min(first, r.at[i].Load()-step*int64(i))
	}
	return l.whole - time.Duration(now-first)
}

func (r *reviewed) anyDue(now int64, l lifetime) bool { return len(r.at) > 0 && r.nextDue(now, l) <= 0 }

// knownReview is the known state of a candidate.
type knownReview struct {
	allowed, offline bool
	at               int64 // when it was reviewed; 0 if it never was
	due              bool  // it needs a review
	reviewed         bool  // it has been reviewed for this set
}
