package review

import (
	"context"
	"sync"
)

// UserReviews is how many reviews of one user's permissions are in flight at a time. A user decides
// how many permissions are reviewed, by the number of object names requested, and all users share
// the requests that the upstream accepts from the gateway.
const UserReviews = 64

// FairQueue limits how many callers proceed at a time on behalf of one user, so that a user with
// many requests delays nobody else. It is safe for concurrent use.
type FairQueue[K comparable] struct {
	// PerUser limits the callers of one user.
	PerUser int
	// Total, if not nil, limits the callers of all users to its capacity.
	Total chan struct{}

	mu struct {
		sync.Mutex
		users map[K]*userQueue // users with callers
	}
}

// userQueue holds the callers of one user. callers is guarded by FairQueue.mu.
type userQueue struct {
	slots   chan struct{}
	callers int // waiting or proceeding
}

// Enter waits for a slot of user; leave releases it.
func (q *FairQueue[K]) Enter(ctx context.Context, user K) (leave func(), err error) {
	q.mu.Lock()
	own := q.mu.users[user]
	if own == nil {
		if q.mu.users == nil {
			q.mu.users = make(map[K]*userQueue)
		}
		own = &userQueue{slots: make(chan struct{}, q.PerUser)}
		q.mu.users[user] = own
	}
	own.callers++
	q.mu.Unlock()
	leave = func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if own.callers--; own.callers == 0 {
			delete(q.mu.users, user)
		}
	}
	for _, slots := range [...]chan struct{}{own.slots, q.Total} {
		if slots == nil {
			continue
		}
		if err := Acquire(ctx, slots); err != nil {
			leave()
			return nil, err
		}
		before := leave
		leave = func() { <-slots; before() }
	}
	return leave, nil
}

// Acquire waits for a slot, which the caller releases by receiving from slots.
func Acquire(ctx context.Context, slots chan struct{}) error {
	select {
	case slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
