package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/kubeweir/kubeweir/origin/storage"
)

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
