package review

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// UserReviews is how many callers may wait for reviews of one user's rights at a time;
// more of them wait for their turn. A user chooses how many rights there are to be
// reviewed, by as many names of objects as they like, and what the upstream lets the
// gateway ask is shared by all.
const UserReviews = 64

// turnWait is how long one waits for the turn.
const turnWait = 3 * time.Second

// FairQueue lets the callers of each user ask in turn. It is safe for concurrent use.
type FairQueue[K comparable] struct {
	mu struct {
		sync.Mutex
		users map[K]*turn // those who ask now
	}
}

// turn is one user's. callers is guarded by the mutex of what it is in.
type turn struct {
	places  chan struct{}
	callers int
}

// Take waits for a place of who's; leave gives it back. After turnWait the client is to
// come back later.
func (t *FairQueue[K]) Take(ctx context.Context, who K) (leave func(), err error) {
	t.mu.Lock()
	mine := t.mu.users[who]
	if mine == nil {
		if t.mu.users == nil {
			t.mu.users = make(map[K]*turn)
		}
		mine = &turn{places: make(chan struct{}, UserReviews)}
		t.mu.users[who] = mine
	}
	mine.callers++
	t.mu.Unlock()
	leave = func() { <-mine.places; t.forget(who, mine) }
	select {
	case mine.places <- struct{}{}:
		return leave, nil
	default:
	}
	patient := time.NewTimer(turnWait)
	defer patient.Stop()
	select {
	case mine.places <- struct{}{}:
		return leave, nil
	case <-patient.C:
		err = apierrors.NewTooManyRequests("too many of the user's permissions are being checked, please try again later", 1)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	t.forget(who, mine)
	return nil, err
}

func (t *FairQueue[K]) forget(who K, mine *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if mine.callers--; mine.callers == 0 {
		delete(t.mu.users, who)
	}
}
