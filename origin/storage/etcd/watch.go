package etcd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/kubeweir/kubeweir/origin/storage"
)

// Watch opens a watch. ctx does not bound its life, Close does; an etcd that cannot be
// reached is waited for by Next, for Options.WatchTimeout.
func (e *Engine) Watch(ctx context.Context, opts storage.WatchOptions) (storage.Watcher, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	from, to := bounds(storage.RangeOptions{Prefix: opts.Prefix})
	w := &watcher{
		engine:   e,
		key:      []byte(from),
		end:      []byte(to),
		batches:  make(chan storage.Batch),
		requests: make(chan struct{}, 1),
		done:     make(chan struct{}),
	}
	w.mu.position = min(opts.After, math.MaxInt64-1) // the next one must be an int64
	w.mu.changed = make(chan struct{})
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mu.closed {
		return nil, storage.ErrClosed
	}
	w.ctx, w.cancel = context.WithCancel(e.ctx)
	e.metrics.watches.Inc()
	e.users.Go(w.run)
	e.users.Go(w.progress)
	return w, nil
}

// Next waits for a batch. The watcher can be used on after an error of ctx.
func (w *watcher) Next(ctx context.Context) (storage.Batch, error) {
	if err := ctx.Err(); err != nil {
		return storage.Batch{}, err
	}
	select {
	case b := <-w.batches:
		return b, nil
	case <-w.done:
		return storage.Batch{}, w.err
	case <-ctx.Done():
		return storage.Batch{}, ctx.Err()
	}
}

func (w *watcher) RequestProgress() {
	select {
	case w.requests <- struct{}{}:
	default: // the request that waits will be sent after this call
	}
}

func (w *watcher) Close() {
	w.closedByUs.Do(func() {
		w.cancel()
		w.engine.metrics.watches.Dec()
	})
	<-w.done
}

// run keeps a stream open until the watcher ends.
func (w *watcher) run() {
	defer close(w.done)
	var pause pauses
	lost := time.Now()
	for {
		confirmed, err := w.follow()
		w.setStream(nil)
		w.held = nil // etcd sends them again
		if w.ctx.Err() != nil {
			w.err = storage.ErrClosed
			return
		}
		var end *endOfWatch
		if errors.As(err, &end) {
			w.err = end.err
			return
		}
		if confirmed {
			pause.reset()
			lost = time.Now()
		}
		if time.Since(lost) > w.engine.watchTimeout {
			w.err = fmt.Errorf("%w: etcd %s: %w", storage.ErrUnavailable, w.engine.endpoints, err)
			return
		}
		w.engine.log.Debug("a watch of etcd is resumed", "prefix", string(w.key), "revision", w.position(), "error", err)
		w.engine.metrics.reopened.Inc()
		pause.wait(w.ctx)
	}
}
