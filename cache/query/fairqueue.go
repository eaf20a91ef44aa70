package query

import (
	"context"
	"slices"
	"sync"
)

// fairQueue admits one caller at a time to make a column from all objects. Each user has at most one
// caller in the queue, and the user's other callers wait behind it. A user who requests many
// columns therefore delays only their own requests. It is safe for concurrent use.
type fairQueue struct {
	place chan struct{} // first come, first served
	mu    struct {
		sync.Mutex
		users map[string]*userQueue // with a caller that waits or makes a column
	}
}

// userQueue is the queue of one user. callers is guarded by fairQueue.mu.
type userQueue struct {
	place   chan struct{}
	callers int
}

func (t *fairQueue) init() {
	t.place = make(chan struct{}, 1)
	t.mu.users = make(map[string]*userQueue)
}

// take waits for the user's turn. The caller calls leave when it is done. The error is that of ctx.
func (t *fairQueue) take(ctx context.Context, user string) (leave func(), err error) {
	t.mu.Lock()
	mine := t.mu.users[user]
	if mine == nil {
		mine = &userQueue{place: make(chan struct{}, 1)}
		t.mu.users[user] = mine
	}
	mine.callers++
	t.mu.Unlock()
	var taken []chan struct{}
	leave = func() {
		for _, place := range slices.Backward(taken) {
			<-place
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		if mine.callers--; mine.callers == 0 {
			delete(t.mu.users, user)
		}
	}
	for _, place := range []chan struct{}{mine.place, t.place} {
		select {
		case place <- struct{}{}:
			taken = append(taken, place)
		case <-ctx.Done():
			leave()
			return nil, ctx.Err()
		}
	}
	return leave, nil
}
