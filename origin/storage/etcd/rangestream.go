package etcd

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/kubeweir/kubeweir/origin/storage"
)

// errCutShort is a stream without its last part, which has the revision.
var errCutShort = errors.New("etcd: a range ended without its last part")

// errNoStream means that a range must be read in pages.
var errNoStream = errors.New("etcd cannot stream the range")

// stream reads a range of one revision in one RangeStream (KEP-5966, etcd 3.7), which takes a third
// of the time of pages (BenchmarkRange). rev is 0 for the current revision. The error is
// errNoStream if pages may succeed: etcd is older, needs long for the next keys although it is
// alive, or one member is unavailable, as the client repeats only unary calls.
func (e *Engine) stream(call context.Context, opts storage.RangeOptions, from, to string, rev int64) (res storage.RangeResult, err error) {
	if e.client.Username != "" || !e.streams.known(time.Now()) {
		return res, errNoStream // with a password, the client authenticates anew for each stream
	}
	ctx, cancel := context.WithCancelCause(call)
	defer cancel(nil)
	limit := e.limit()
	idle := time.AfterFunc(limit, func() { cancel(context.DeadlineExceeded) })
	defer idle.Stop()
	chunks, err := e.client.GetStream(ctx, from, pageOptions(opts, to, rev, 0)...)
	if err != nil {
		return res, e.streamError(call, ctx, err)
	}
	defer func() {
		cancel(nil)
		for range chunks { // so that the client's goroutine ends
		}
	}()
	res.KVs = []storage.KeyValue{}
	for chunk := range chunks {
		if err := chunk.Err(); err != nil {
			return storage.RangeResult{}, e.streamError(call, ctx, err)
		}
		idle.Reset(limit)
		for _, kv := range chunk.Kvs {
			res.KVs = append(res.KVs, keyValue(kv))
		}
		if chunk.Header == nil {
			continue
		}
		res.Revision = revisionRead((*clientv3.GetResponse)(chunk.RangeResponse), rev)
		if opts.Count {
			res.Count = chunk.Count
		}
		return res, nil
	}
	return storage.RangeResult{}, errCutShort
}

// streamError returns errNoStream for errors that reading in pages may avoid. ctx is the context of
// the stream.
func (e *Engine) streamError(call, ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, context.DeadlineExceeded) {
		err = cause
	}
	switch {
	case codeOf(err) == codes.Unimplemented:
		e.streams.unknownSince.Store(time.Now().UnixNano())
		return errNoStream
	case codeOf(err) == codes.Unavailable && call.Err() == nil, e.isSlow(call, err):
		return errNoStream
	}
	return err
}
