package discovery

import (
	"context"
	"errors"
	"time"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/watchmux"
)

// ErrNotServed is the error of following a resource that the upstream does not serve.
var ErrNotServed = errors.New("the upstream does not serve the resource")

// Retry calls follow again and again, interval after it returned, until ctx ends. It calls failed with
// the error, but not for the same error twice in a row. followed is true if follow succeeded for some
// time, which makes any error a new one.
func Retry(ctx context.Context, interval time.Duration, follow func() (followed bool, err error), failed func(error)) {
	for last := ""; ctx.Err() == nil; {
		followed, err := follow()
		if ctx.Err() != nil {
			return
		}
		if followed || err.Error() != last {
			last = err.Error()
			failed(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(interval):
		}
	}
}

// FollowCollection calls initial with the current objects and change with every later change, in
// order, until ctx or the collection ends.
func FollowCollection(ctx context.Context, c *cache.Collection, initial func([]*object.Object), change func(watchmux.Delivery)) error {
	wake := make(chan struct{}, 1)
	snapshot, w, err := c.Follow(nil, func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return err
	}
	defer w.Stop()
	objects := make([]*object.Object, 0, snapshot.Len())
	snapshot.Ascend("", "", func(o *object.Object) bool {
		objects = append(objects, o)
		return true
	})
	initial(objects)
	var deliveries []watchmux.Delivery
	for {
		deliveries, _, err = w.Next(deliveries[:0], 64)
		for _, d := range deliveries {
			change(d)
		}
		if err != nil {
			return err
		}
		if len(deliveries) > 0 {
			continue
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
