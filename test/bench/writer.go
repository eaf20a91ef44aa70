package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// A writer updates pods through a server, one after the other, each time with another value of an
// annotation.
type writer struct {
	server *server
	pods   int
	// last is the number of the last write, shared by all writers so that no write is a no-op.
	last *atomic.Int64
	// before, if set, is called with the pod's number before each write.
	before func(pod int, at time.Time)
	// hold, if set, delays the k-th write until it returns; an error ends the writing.
	hold func(ctx context.Context, k int64) error
}

// writes determine how a writer writes.
type writes struct {
	// n is how many writes to send; 0 means until the time is up.
	n int
	// rate is how many writes per second; 0 means as many as the server takes.
	rate int
	// workers is the maximum number of concurrent writes.
	workers int
}

// run writes until n writes are done or ctx ends, which is no error, and returns how many were
// done.
func (w *writer) run(ctx context.Context, ws writes) (int64, error) {
	// The connections outlive ctx, so that the last writes complete and are counted.
	live, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var next, done atomic.Int64
	begin := time.Now()
	errs := make([]error, ws.workers)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			c, err := dial(live, w.server, 16<<10)
			if err != nil {
				errs[i] = err
				return
			}
			defer c.close()
			for {
				k := next.Add(1) - 1
				if ws.n > 0 && k >= int64(ws.n) {
					return
				}
				if ws.rate > 0 && sleep(ctx, time.Until(begin.Add(time.Duration(k)*time.Second/time.Duration(ws.rate)))) != nil {
					return
				}
				if w.hold != nil && w.hold(ctx, k) != nil || ctx.Err() != nil {
					return
				}
				if errs[i] = w.write(c); errs[i] != nil {
					return
				}
				done.Add(1)
			}
		})
	}
	wg.Wait()
	return done.Load(), errors.Join(errs...)
}

// write updates the next pod.
func (w *writer) write(c *conn) error {
	k := w.last.Add(1)
	pod := int(k % int64(w.pods))
	request := w.server.encode(requestSpec{
		method: "PATCH", path: podPath(pod) + "?fieldManager=bench", contentType: "application/merge-patch+json",
		body: fmt.Appendf(nil, `{"metadata":{"annotations":{"bench.example.com/write":"%012d"}}}`, k),
	})
	if w.before != nil {
		w.before(pod, time.Now())
	}
	_, err := c.get(request, 200)
	return err
}

// writeCost returns the processor time of one write on kube-apiserver without readers.
func (m *measurer) writeCost(ctx context.Context, s *server, ws writes) (time.Duration, error) {
	if err := m.quiet(ctx, s.pids...); err != nil {
		return 0, err
	}
	before, err := realkube.CPUTime(s.pids...)
	if err != nil {
		return 0, err
	}
	done, err := m.writer(s).run(ctx, ws)
	if err != nil || done == 0 {
		return 0, errors.Join(err, ctx.Err())
	}
	after, err := realkube.CPUTime(s.pids...)
	return (after - before) / time.Duration(done), err
}

const (
	// churnWorkers are enough to sustain a rate of updates on a busy machine.
	churnWorkers = 4
	// fastWorkers are enough to keep a kube-apiserver without watchers busy.
	fastWorkers = 16
)

// churning calls f while pods are updated through s at a rate, and returns how many updates were
// made.
func (m *measurer) churning(ctx context.Context, s *server, rate int, f func() error) (int64, error) {
	if rate == 0 {
		return 0, f()
	}
	writing, stop := context.WithCancel(ctx)
	type result struct {
		done int64
		err  error
	}
	ended := make(chan result, 1)
	go func() {
		done, err := m.writer(s).run(writing, writes{rate: rate, workers: churnWorkers})
		ended <- result{done, err}
	}()
	err := f()
	stop()
	r := <-ended
	return r.done, errors.Join(err, r.err)
}
