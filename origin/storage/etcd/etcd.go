// Package etcd is the storage.Engine on an etcd v3 cluster, for origins that run
// on more than one machine. Several processes with one etcd are one API server.
//
// Keys and values pass unchanged, so the layout is that of whoever uses the
// engine; what kube-apiserver keeps besides (compact_rev_key) is kept the same
// way, so that both may run on one etcd at the same time.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

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

// Open connects to etcd and returns once it has answered. An etcd that does not
// is storage.ErrUnavailable. ctx bounds the opening only.
func Open(ctx context.Context, opts Options) (*Engine, error) {
	if opts.DialTimeout == 0 {
		opts.DialTimeout = defaultDialTimeout
	}
	if opts.WatchTimeout == 0 {
		opts.WatchTimeout = defaultWatchTimeout
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	cfg, err := clientConfig(opts)
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(opts.Registerer)
	if err != nil {
		return nil, err
	}
	e := &Engine{endpoints: strings.Join(opts.Endpoints, ","), log: opts.Logger, metrics: m, requestTimeout: requestTimeout, watchTimeout: opts.WatchTimeout}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.client, err = clientv3.New(cfg) // asks for a token, if there is a user
	if err != nil {
		e.cancel()
		m.unregister()
		return nil, e.translate(ctx, err)
	}
	e.leases.grant = e.grantLease
	if err := e.greet(ctx, opts); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	if opts.CompactionInterval >= 0 {
		c := &compactor{engine: e, interval: opts.CompactionInterval}
		if c.interval == 0 {
			c.interval = defaultCompactionInterval
		}
		e.users.Go(c.run)
	}
	return e, nil
}

// clientConfig returns the configuration of etcd's client.
func clientConfig(opts Options) (clientv3.Config, error) {
	if len(opts.Endpoints) == 0 {
		return clientv3.Config{}, errors.New("etcd: no endpoints")
	}
	cfg := clientv3.Config{
		Endpoints:            opts.Endpoints,
		DialTimeout:          opts.DialTimeout,
		DialKeepAliveTime:    keepaliveTime,
		DialKeepAliveTimeout: keepaliveTimeout,
		Username:             opts.Username,
		Password:             opts.Password,
		Logger:               zap.NewNop(), // it logs every retry; the engine logs when etcd fails and recovers
		DialOptions: []grpc.DialOption{
			grpc.WithInitialWindowSize(streamWindow),
			grpc.WithInitialConnWindowSize(connWindow),
			// gRPC's default waits up to two minutes before it tries again.
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 3 * time.Second},
				MinConnectTimeout: 5 * time.Second,
			}),
		},
	}
	if opts.CertFile == "" && opts.KeyFile == "" && opts.CAFile == "" {
		return cfg, nil // for https the system's authorities
	}
	info := transport.TLSInfo{CertFile: opts.CertFile, KeyFile: opts.KeyFile, TrustedCAFile: opts.CAFile}
	var err error
	if cfg.TLS, err = info.ClientConfig(); err != nil {
		return clientv3.Config{}, fmt.Errorf("etcd: certificates: %w", err)
	}
	return cfg, nil
}

// greet waits until etcd answers, and checks that it is one whose progress
// notifications can be trusted.
func (e *Engine) greet(ctx context.Context, opts Options) error {
	ctx, cancel := context.WithTimeoutCause(ctx, opts.DialTimeout, fmt.Errorf("no answer in %v", opts.DialTimeout))
	defer cancel()
	last := fmt.Errorf("%w: etcd %s", storage.ErrUnavailable, e.endpoints)
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		_, err := e.CurrentRevision(ctx)
		switch {
		case err == nil:
			return e.checkVersions(ctx, opts.Endpoints)
		case errors.Is(err, storage.ErrUnavailable):
			last = err
		case ctx.Err() == nil:
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", last, context.Cause(ctx))
		}
	}
}

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

// CurrentRevision reads the revision from a quorum. Calls at the same time share
// a request that begins after each of them.
func (e *Engine) CurrentRevision(ctx context.Context) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	rev, _, err := e.revisions.Do(ctx, struct{}{}, e.readRevision)
	if err != nil && ctx.Err() != nil {
		return 0, ctx.Err()
	}
	return rev, err
}

func (e *Engine) readRevision(ctx context.Context) (uint64, error) {
	call, end, err := e.begin(ctx)
	if err != nil {
		return 0, err
	}
	defer end()
	started := time.Now()
	// Any key does; this one every user of the store may read.
	resp, err := e.page(call, compactRevKey, []clientv3.OpOption{clientv3.WithCountOnly()})
	if err := e.done(ctx, "revision", started, err); err != nil {
		return 0, err
	}
	return uint64(resp.Header.Revision), nil
}

// Close ends watches and calls in progress and waits for them. The store itself keeps running.
func (e *Engine) Close() error {
	e.mu.Lock()
	closed := e.mu.closed
	e.mu.closed = true
	e.mu.Unlock()
	if closed {
		return nil
	}
	e.cancel()
	e.users.Wait()
	e.metrics.unregister()
	if err := e.client.Close(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("etcd: close: %w", err)
	}
	return nil
}
