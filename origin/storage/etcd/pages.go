package etcd

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kubeweir/kubeweir/origin/storage"
)

// keyValue converts kv, whose value it shares: nothing else refers to the decoded message.
func keyValue(kv *mvccpb.KeyValue) storage.KeyValue {
	return storage.KeyValue{Key: string(kv.Key), Value: kv.Value, Revision: uint64(kv.ModRevision)}
}

// page is one request of a range.
func (e *Engine) page(ctx context.Context, from string, opts []clientv3.OpOption) (*clientv3.GetResponse, error) {
	ctx, cancel := e.bounded(ctx)
	defer cancel()
	return e.client.Get(ctx, from, opts...)
}

// isSlow reports whether a page took too long although etcd answers: its values are large, or the
// way is.
func (e *Engine) isSlow(ctx context.Context, err error) bool {
	if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) && !isTimeout(rpctypes.Error(err)) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, outageTimeout)
	defer cancel()
	_, err = e.client.Get(ctx, compactRevKey, clientv3.WithCountOnly())
	return err == nil
}

func pageOptions(opts storage.RangeOptions, to string, rev, limit int64) []clientv3.OpOption {
	out := []clientv3.OpOption{clientv3.WithRev(rev), clientv3.WithLimit(limit)} // 0 for no limit
	if to != "" {
		out = append(out, clientv3.WithRange(to))
	}
	if opts.KeysOnly {
		out = append(out, clientv3.WithKeysOnly())
	}
	return out
}

// revisionRead returns the revision of a response: the requested one, or that of the store.
func revisionRead(resp *clientv3.GetResponse, requested int64) uint64 {
	if requested > 0 {
		return uint64(requested)
	}
	return uint64(resp.Header.Revision)
}
