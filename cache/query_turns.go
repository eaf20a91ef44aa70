package cache

import (
	"context"
	"sync"
)

// turns lets one caller at a time make a column from all objects. Each user has one caller
// that waits for that, and others behind it, so that who asks for many different columns
// waits for their own. It is safe for concurrent use.
type turns struct {
	place chan struct{} // served in the order of those who wait
	mu    struct {
		sync.Mutex
		users map[string]*turn // those who wait, or make
	}
}

// turn is one user's. callers is guarded by turns.mu.
type turn struct {
	place   chan struct{}
	callers int
}

func (t *turns) init() {
	t.place = make(chan struct{}, 1)
	t.mu.users = make(map[string]*turn)
}

// take waits for the user's turn; leave ends it. The error is ctx's.
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
