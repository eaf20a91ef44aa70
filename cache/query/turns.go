package query

import (
	"context"
	"sync"
)

// turns admits one caller at a time to make a column from all objects. Each user has at most one
// caller in the queue, and the user's other callers wait behind it. A user who requests many
// columns therefore delays only their own requests. It is safe for concurrent use.
type turns struct {
	place chan struct{} // first come, first served
	mu    struct {
		sync.Mutex
		users map[string]*turn // with a caller that waits or makes a column
	}
}

// turn is the queue of one user. callers is guarded by turns.mu.
type turn struct {
	place   chan struct{}
	callers int
}

func (t *turns) init() {
	t.place = make(chan struct{}, 1)
	t.mu.users = make(map[string]*turn)
}

// take waits for the user's turn. The caller calls leave when it is done. The error is that of ctx.
func (t *turns) take(ctx context.Context, user string) (leave func(), err error) {
	mine := t.of(user)
	select {
	case mine.place <- struct{}{}:
	case <-ctx.Done():
		t.forget(user, mine)
		return nil, ctx.Err()
	}
	select {
	case t.place <- struct{}{}:
	case <-ctx.Done():
		<-mine.place
		t.forget(user, mine)
		return nil, ctx.Err()
	}
	return func() {
		<-t.place
		<-mine.place
		t.forget(user, mine)
	}, nil
}

func (t *turns) of(user string) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	mine := t.mu.users[user]
	if mine == nil {
		mine = &turn{place: make(chan struct{}, 1)}
		t.mu.users[user] = mine
	}
	mine.callers++
	return mine
}

func (t *turns) forget(user string, mine *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if mine.callers--; mine.callers == 0 {
		delete(t.mu.users, user)
	}
}
