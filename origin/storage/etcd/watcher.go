package etcd

import (
	"context"
	"fmt"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/kubeweir/kubeweir/origin/storage"
)

// A watcher is a watch of its own stream to etcd.
//
// etcd's client would multiplex all watches on one stream and buffer without a
// bound what their readers do not take. Here each has a stream, read only when
// Next wants more, so that gRPC's flow control reaches back to etcd: a slow reader
// costs streamWindow bytes here, and etcd keeps it as unsynced, reading from
// its history. A progress request is answered for this watch alone, too, while etcd
// answers one of a shared stream only when no watch on it is behind.
//
//	run:      stream ──▶ batches ──▶ Next     (opens the stream again when it ends)
//	progress: ask ──▶ requests on the stream, until run has handed over the answer, or,
//	          when nothing has changed since the watch's position, batches ──▶ Next
type watcher struct {
	engine     *Engine
	key, end   []byte
	ctx        context.Context // ends with the watcher or the engine
	cancel     context.CancelFunc
	batches    chan storage.Batch // unbuffered: when a send returns, Next has the batch
	requests   chan struct{}      // has room for one: progress is requested
	done       chan struct{}      // closed when run has ended
	err        error              // why; written before done is closed
	closedByUs sync.Once

	// Used by run only.
	seen    uint64 // the newest revision that etcd has sent on this watch, without the start
	cluster uint64 // that sent it
	held    []storage.Event

	// turn is held while a batch is handed to Next, which may take long; before mu.
	turn sync.Mutex
	mu   struct {
		sync.Mutex
		position uint64        // everything up to it was handed over; changed with turn held
		stream   sender        // nil while there is none that etcd has confirmed
		handing  bool          // a goroutine waits for Next
		handed   uint64        // batches taken by Next
		changed  chan struct{} // closed and replaced when stream or handed changes
	}
}

// position returns the revision up to which everything was handed over, or is being.
func (w *watcher) position() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.position
}

// hand passes a batch to Next. The caller holds turn. It returns false if the watcher was closed.
func (w *watcher) hand(b storage.Batch) bool {
	w.mu.Lock()
	w.mu.position = max(w.mu.position, b.Revision)
	w.mu.handing = true
	w.mu.Unlock()
	taken := false
	select {
	case w.batches <- b:
		taken = true
	case <-w.ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.handing = false
	if taken {
		w.mu.handed++
	}
	w.change()
	return taken
}

// change wakes progress. w.mu is held.
func (w *watcher) change() {
	close(w.mu.changed)
	w.mu.changed = make(chan struct{})
}

// endOfWatch is an error that ends the watch rather than its stream.
type endOfWatch struct{ err error }

func (e *endOfWatch) Error() string { return e.err.Error() }

func (e *endOfWatch) Unwrap() error { return e.err }

// event converts one of etcd's. Without the previous value, which etcd leaves out when the
// revision before the event is compacted, it is not what the contract promises.
func event(ev *clientv3.Event) (storage.Event, error) {
	out := storage.Event{Type: storage.Updated, KV: keyValue(ev.Kv)}
	switch {
	case ev.Type == clientv3.EventTypeDelete:
		out.Type, out.KV.Value = storage.Deleted, nil
	case ev.IsCreate():
		out.Type = storage.Created
		return out, nil
	}
	if ev.PrevKv == nil {
		return out, fmt.Errorf("%w: what %s was before revision %d", storage.ErrCompacted, out.KV.Key, out.KV.Revision)
	}
	previous := keyValue(ev.PrevKv)
	out.Previous = &previous
	return out, nil
}

// A sender is the sending half of a stream. One goroutine at a time uses it.
type sender interface{ Send(*pb.WatchRequest) error }
