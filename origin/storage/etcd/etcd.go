// Package etcd is the storage.Engine on an etcd v3 cluster, for origins that run
// on more than one machine. Several processes with one etcd are one API server.
//
// Keys and values pass unchanged, so the layout is that of whoever uses the
// engine; what kube-apiserver keeps besides (compact_rev_key) is kept the same
// way, so that both may run on one etcd at the same time.
package etcd

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"

	"sync/atomic"

	"github.com/kubeweir/kubeweir/internal/flight"
	"github.com/kubeweir/kubeweir/origin/storage"
)

// Options determine which etcd to use and how.
type Options struct {
	// Endpoints are the URLs of the cluster's members ("https://10.0.0.1:2379"). Without a scheme
	// the connection is not encrypted.
	Endpoints []string
	// CertFile and KeyFile are the client certificate, CAFile the authority of etcd's; each may be
	// empty. The certificate is read again for each connection, so that it can be renewed.
	CertFile, KeyFile, CAFile string
	// Username and Password, if etcd's own authentication is enabled.
	Username, Password string
	// DialTimeout is how long Open waits for etcd, 0 for 10 s.
	DialTimeout time.Duration
	// CompactionInterval is how long history is kept at least (at most twice as long), 0 for 5
	// minutes as kube-apiserver does. Below 0 only Compact compacts.
	CompactionInterval time.Duration
	// WatchTimeout is how long a watch survives an etcd that cannot be reached, 0 for 5 s.
	WatchTimeout time.Duration
	// Logger may be nil.
	Logger *slog.Logger
	// Registerer takes the metrics (kubeweir_etcd_*); it may be nil.
	Registerer prometheus.Registerer
}

const (
	defaultDialTimeout = 10 * time.Second
	// A connection without a response for so long is dead, and watches fail. etcd accepts pings every
	// 5 s; kube-apiserver has 30 and 10 s (storage/storagebackend/factory/etcd3.go), and does not
	// report that responses from its cache are stale meanwhile.
	keepaliveTime    = 10 * time.Second
	keepaliveTimeout = 5 * time.Second
	// requestTimeout is the time for one request to etcd, outageTimeout if the last one failed, too:
	// clients get a response within 10 s, and few of them wait here. kube-apiserver waits for as long
	// as its client.
	requestTimeout = 7 * time.Second
	outageTimeout  = 2 * time.Second
	// defaultWatchTimeout is short because the reader of a watch must not mistake an outage for a lack
	// of events.
	defaultWatchTimeout = 5 * time.Second
	// streamWindow bounds the data that etcd sends on a watch without a reader, besides one
	// message. It also bounds the data in flight of a long range. gRPC's own estimate goes up to 16
	// MiB per stream.
	streamWindow = 1 << 20
	connWindow   = 16 << 20
)

// Engine is a storage.Engine on an etcd cluster. Make it with Open.
type Engine struct {
	client    *clientv3.Client
	endpoints string // for errors
	log       *slog.Logger
	metrics   *metrics
	leases    leases
	revisions flight.Group[struct{}, uint64]
	streams   rangeStreams

	requestTimeout time.Duration // requestTimeout, but in tests
	watchTimeout   time.Duration

	// ctx ends when the engine is closed; all its goroutines and calls end with it.
	ctx    context.Context
	cancel context.CancelFunc

	mu struct {
		sync.Mutex
		closed      bool
		unreachable bool // as last logged
	}
	// users counts calls in progress and goroutines. It may be incremented only under mu, while the
	// engine is not closed.
	users sync.WaitGroup
}

var _ storage.Engine = (*Engine)(nil)

// begin registers a call. It returns a context that also ends when the engine is closed, and a
// function to call at the end.
func (e *Engine) begin(ctx context.Context) (context.Context, func(), error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mu.closed {
		return nil, nil, storage.ErrClosed
	}
	e.users.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(e.ctx, cancel)
	return ctx, func() {
		stop()
		cancel()
		e.users.Done()
	}, nil
}

// bounded returns a context with the timeout of one request.
func (e *Engine) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, e.limit())
}

// limit is how long one request may take, or the next part of a stream.
func (e *Engine) limit() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mu.unreachable {
		return outageTimeout
	}
	return e.requestTimeout
}

// rangeStreams records whether etcd supports RangeStream. It is safe for concurrent use.
type rangeStreams struct{ unknownSince atomic.Int64 }

func (s *rangeStreams) known(now time.Time) bool {
	since := s.unknownSince.Load()
	return since == 0 || now.Sub(time.Unix(0, since)) >= streamRecheck
}

// streamRecheck is how long an etcd that does not support RangeStream is not tried again, as in
// kube-apiserver (k8s.io/apiserver/pkg/storage/feature): it may be upgraded while the engine runs.
const streamRecheck = 10 * time.Minute
