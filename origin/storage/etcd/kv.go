package etcd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kubeweir/kubeweir/origin/storage"
)

const (
	// pageSize is how many keys a request to etcd reads at most. A range of more is several requests
	// at one revision: neither side then holds the whole answer once more as a message.
	pageSize = 1000
	// rangeTries is how often a range of the current revision is begun again when that was compacted
	// meanwhile.
	rangeTries = 3
)

// Put implements storage.Engine by a transaction that compares the key's revision and writes the
// value or reads the current one.
func (e *Engine) Put(ctx context.Context, key string, value []byte, expect storage.Precondition, ttl time.Duration) (uint64, error) {
	rev, id, err := e.put(ctx, key, value, expect, ttl)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		// The remembered lease is gone from etcd (restored, revoked by hand); nothing was written.
		e.leases.forget(id)
		rev, _, err = e.put(ctx, key, value, expect, ttl)
	}
	return rev, err
}

func (e *Engine) put(ctx context.Context, key string, value []byte, expect storage.Precondition, ttl time.Duration) (uint64, clientv3.LeaseID, error) {
	call, end, err := e.begin(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer end()
	var opts []clientv3.OpOption
	var id clientv3.LeaseID
	started := time.Now()
	if ttl > 0 {
		if id, err = e.leases.get(call, ttl, started); err != nil {
			return 0, 0, e.done(ctx, "put", started, err)
		}
		opts = append(opts, clientv3.WithLease(id))
	}
	rev, err := e.change(call, key, expect, clientv3.OpPut(key, string(value), opts...))
	return rev, id, uncertain(e.respond(ctx, "put", started, err))
}

// Delete implements storage.Engine by a transaction like that of Put.
func (e *Engine) Delete(ctx context.Context, key string, expect storage.Precondition) (uint64, error) {
	if expect.Revision == 0 {
		return 0, errors.New("etcd: delete without a revision")
	}
	call, end, err := e.begin(ctx)
	if err != nil {
		return 0, err
	}
	defer end()
	started := time.Now()
	rev, err := e.change(call, key, expect, clientv3.OpDelete(key))
	return rev, uncertain(e.respond(ctx, "delete", started, err))
}

// respond is done for changes, to which a conflict is no failure.
func (e *Engine) respond(ctx context.Context, operation string, started time.Time, err error) error {
	var conflict *storage.ConflictError
	if errors.As(err, &conflict) {
		_ = e.done(ctx, operation, started, nil)
		return err
	}
	return e.done(ctx, operation, started, err)
}

func (e *Engine) change(ctx context.Context, key string, expect storage.Precondition, op clientv3.Op) (uint64, error) {
	ctx, cancel := e.bounded(ctx)
	defer cancel()
	if expect.Revision > math.MaxInt64 {
		expect.Revision = math.MaxInt64 // no key has it
	}
	resp, err := e.client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(key), "=", int64(expect.Revision))).
		Then(op).
		Else(clientv3.OpGet(key)).
		Commit()
	if err != nil {
		return 0, err
	}
	if resp.Succeeded {
		return uint64(resp.Header.Revision), nil
	}
	conflict := &storage.ConflictError{Key: key}
	if kvs := resp.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
		kv := keyValue(kvs[0])
		conflict.Current = &kv
	}
	return 0, conflict
}

// Range implements storage.Engine. It reads one revision linearizably, in a stream or in pages.
func (e *Engine) Range(ctx context.Context, opts storage.RangeOptions) (storage.RangeResult, error) {
	call, end, err := e.begin(ctx)
	if err != nil {
		return storage.RangeResult{}, err
	}
	defer end()
	started := time.Now()
	for try := 1; ; try++ {
		res, err := e.readRange(call, opts)
		switch {
		case err == nil:
			return res, e.done(ctx, "range", started, nil)
		case errors.Is(err, rpctypes.ErrCompacted) && opts.Revision == 0 && try < rangeTries:
			// The revision of the first page was compacted before the last was read.
		case errors.Is(err, rpctypes.ErrFutureRev):
			res, err = e.fromTheFuture(ctx, opts)
			return res, err
		default:
			return storage.RangeResult{}, e.done(ctx, "range", started, err)
		}
	}
}

// fromTheFuture reads the current revision for the error. The requested one may have been reached
// meanwhile.
func (e *Engine) fromTheFuture(ctx context.Context, opts storage.RangeOptions) (storage.RangeResult, error) {
	now, err := e.CurrentRevision(ctx)
	switch {
	case err != nil:
		return storage.RangeResult{}, err
	case now >= opts.Revision:
		return e.Range(ctx, opts)
	}
	e.metrics.errors.WithLabelValues("range", "future").Inc()
	return storage.RangeResult{}, &storage.FutureError{Current: now}
}

func (e *Engine) readRange(ctx context.Context, opts storage.RangeOptions) (storage.RangeResult, error) {
	from, to := bounds(opts)
	rev := int64(min(opts.Revision, math.MaxInt64))
	if from == "" {
		// No key can match, but the revision must be one that can be read.
		resp, err := e.page(ctx, compactRevKey, []clientv3.OpOption{clientv3.WithRev(rev), clientv3.WithCountOnly()})
		if err != nil {
			return storage.RangeResult{}, err
		}
		return storage.RangeResult{Revision: revisionRead(resp, rev)}, nil
	}
	if opts.Limit == 0 && !opts.Exact {
		if res, err := e.stream(ctx, opts, from, to, rev); !errors.Is(err, errNoStream) {
			return res, err
		}
	}
	var res storage.RangeResult
	for size := int64(pageSize); ; {
		limit := size
		if left := opts.Limit - int64(len(res.KVs)); opts.Limit > 0 && left < limit {
			limit = left
		}
		resp, err := e.page(ctx, from, pageOptions(opts, to, rev, limit))
		switch {
		case err != nil && limit > 1 && e.isSlow(ctx, err):
			size = max(1, limit/10)
			continue
		case err != nil:
			return storage.RangeResult{}, err
		}
		if res.KVs == nil {
			res.Revision = revisionRead(resp, rev)
			rev = int64(res.Revision)
			if opts.Count {
				res.Count = resp.Count
			}
			res.KVs = make([]storage.KeyValue, 0, sizeOf(resp.Count, opts.Limit))
		}
		for _, kv := range resp.Kvs {
			res.KVs = append(res.KVs, keyValue(kv))
		}
		if !resp.More || opts.Limit > 0 && int64(len(res.KVs)) >= opts.Limit {
			res.More = resp.More
			return res, nil
		}
		if len(resp.Kvs) == 0 {
			return storage.RangeResult{}, fmt.Errorf("etcd: an empty page of a range from %q, with more to come", from)
		}
		from = res.KVs[len(res.KVs)-1].Key + "\x00"
	}
}

func sizeOf(count, limit int64) int64 {
	if limit > 0 {
		return min(count, limit)
	}
	return count
}

// endOfAll is etcd's range end for "all keys from the first on".
const endOfAll = "\x00"

// bounds is a range in etcd's terms: the first key, "" when no key can match, and
// the end, exclusive, "" for the one key only.
func bounds(opts storage.RangeOptions) (from, to string) {
	if opts.Exact {
		if opts.From > opts.Prefix {
			return "", ""
		}
		return opts.Prefix, ""
	}
	from, to = opts.Prefix, clientv3.GetPrefixRangeEnd(opts.Prefix)
	from = max(from, opts.From)
	if from == "" {
		from = "\x00" // etcd has no empty key
	}
	if to != endOfAll && from >= to {
		return "", ""
	}
	return from, to
}

// Compact implements storage.Engine. A revision that is not reached yet is a *storage.FutureError.
func (e *Engine) Compact(ctx context.Context, revision uint64) error {
	call, end, err := e.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	started := time.Now()
	_, err = e.client.Compact(call, int64(min(revision, math.MaxInt64)))
	switch {
	case errors.Is(err, rpctypes.ErrCompacted):
		return e.done(ctx, "compact", started, nil)
	case errors.Is(err, rpctypes.ErrFutureRev):
		now, err := e.CurrentRevision(ctx)
		if err != nil {
			return err
		}
		return &storage.FutureError{Current: now}
	}
	err = e.done(ctx, "compact", started, err)
	if err == nil {
		e.metrics.compacted.Set(float64(revision))
	}
	return err
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

func (e *Engine) grantLease(ctx context.Context, seconds int64) (clientv3.LeaseID, error) {
	started := time.Now()
	ctx, cancel := e.bounded(ctx)
	defer cancel()
	resp, err := e.client.Grant(ctx, seconds)
	e.metrics.requests.WithLabelValues("lease").Observe(time.Since(started).Seconds())
	if err != nil {
		return 0, err
	}
	return resp.ID, nil
}
