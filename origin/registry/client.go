package registry

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apiserver/pkg/storage"

	engine "github.com/kubeweir/kubeweir/origin/storage"
)

// client presents an engine to apiserver's storage/etcd3 as an etcd client.
type client struct{ engine engine.Engine }

// newClient returns a client without a connection. etcd3 uses it only for the methods of client,
// pages and leases, and for watches, which Store implements itself.
func newClient(e engine.Engine) *kubernetes.Client {
	etcd := clientv3.NewCtxClient(context.Background())
	etcd.KV, etcd.Lease = pages{}, leases{}
	return &kubernetes.Client{Client: etcd, Kubernetes: client{e}}
}

// pages is a KV that cannot stream ranges, so that lists are read in pages.
type pages struct{ clientv3.KV }

func (pages) GetStream(context.Context, string, ...clientv3.OpOption) (clientv3.GetStreamChan, error) {
	return nil, status.Error(codes.Unimplemented, "the engine does not stream ranges")
}

// leases grants leases whose IDs are their seconds to live. OptimisticPut reads them.
type leases struct{ clientv3.Lease }

func (leases) Grant(_ context.Context, seconds int64) (*clientv3.LeaseGrantResponse, error) {
	return &clientv3.LeaseGrantResponse{ID: clientv3.LeaseID(seconds)}, nil
}

// Get implements kubernetes.Interface.
func (c client) Get(ctx context.Context, key string, opts kubernetes.GetOptions) (kubernetes.GetResponse, error) {
	result, err := c.engine.Range(ctx, engine.RangeOptions{Prefix: key, Exact: true, Revision: uint64(opts.Revision)})
	if err != nil {
		return kubernetes.GetResponse{}, readError(err, opts.Revision)
	}
	resp := kubernetes.GetResponse{Revision: int64(result.Revision)}
	if len(result.KVs) > 0 {
		resp.KV = keyValue(&result.KVs[0])
	}
	return resp, nil
}

// List implements kubernetes.Interface.
func (c client) List(ctx context.Context, prefix string, opts kubernetes.ListOptions) (kubernetes.ListResponse, error) {
	result, err := c.engine.Range(ctx, engine.RangeOptions{
		Prefix: prefix, From: opts.Continue, Revision: uint64(opts.Revision), Limit: opts.Limit, Count: opts.Limit > 0,
	})
	if err != nil {
		return kubernetes.ListResponse{}, readError(err, opts.Revision)
	}
	resp := kubernetes.ListResponse{
		Kvs: make([]*mvccpb.KeyValue, len(result.KVs)), Count: max(result.Count, int64(len(result.KVs))), Revision: int64(result.Revision),
	}
	for i := range result.KVs {
		resp.Kvs[i] = keyValue(&result.KVs[i])
	}
	return resp, nil
}

// Count implements kubernetes.Interface.
func (c client) Count(ctx context.Context, prefix string, _ kubernetes.CountOptions) (int64, error) {
	result, err := c.engine.Range(ctx, engine.RangeOptions{Prefix: prefix, Count: true, Limit: 1, KeysOnly: true})
	return result.Count, engineError(err)
}

// OptimisticPut implements kubernetes.Interface.
func (c client) OptimisticPut(
	ctx context.Context, key string, value []byte, expected int64, opts kubernetes.PutOptions,
) (kubernetes.PutResponse, error) {
	ttl := time.Duration(opts.LeaseID) * time.Second
	revision, err := c.engine.Put(ctx, key, value, engine.Precondition{Revision: uint64(expected)}, ttl)
	var conflict *engine.ConflictError
	if errors.As(err, &conflict) {
		return kubernetes.PutResponse{KV: keyValue(conflict.Current)}, nil
	}
	return kubernetes.PutResponse{Succeeded: err == nil, Revision: int64(revision)}, engineError(err)
}

// OptimisticDelete implements kubernetes.Interface.
func (c client) OptimisticDelete(
	ctx context.Context, key string, expected int64, _ kubernetes.DeleteOptions,
) (kubernetes.DeleteResponse, error) {
	if expected == 0 { // the caller's object has no version: it needs the current one
		resp, err := c.Get(ctx, key, kubernetes.GetOptions{})
		return kubernetes.DeleteResponse{KV: resp.KV}, err
	}
	revision, err := c.engine.Delete(ctx, key, engine.Precondition{Revision: uint64(expected)})
	var conflict *engine.ConflictError
	if errors.As(err, &conflict) {
		return kubernetes.DeleteResponse{KV: keyValue(conflict.Current)}, nil
	}
	return kubernetes.DeleteResponse{Succeeded: err == nil, Revision: int64(revision)}, engineError(err)
}

// keyValue converts kv, which may be nil. The value is shared.
func keyValue(kv *engine.KeyValue) *mvccpb.KeyValue {
	if kv == nil {
		return nil
	}
	return &mvccpb.KeyValue{Key: []byte(kv.Key), Value: kv.Value, ModRevision: int64(kv.Revision)}
}

// readError is engineError for reads at a revision, in the form that etcd3 expects.
func readError(err error, revision int64) error {
	var future *engine.FutureError
	switch {
	case errors.Is(err, engine.ErrCompacted):
		return rpctypes.ErrCompacted
	case errors.As(err, &future):
		return storage.NewTooLargeResourceVersionError(uint64(revision), future.Current, tooLargeRetry)
	}
	return engineError(err)
}
