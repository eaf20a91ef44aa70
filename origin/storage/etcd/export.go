package etcd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kubeweir/kubeweir/origin/storage"
)

// ErrChanged is the error of Export.Next if keys were written since the export began.
var ErrChanged = errors.New("objects were changed meanwhile")

// An Export reads all keys with a prefix at one revision, page by page. It is not safe for concurrent use.
type Export struct {
	engine       *Engine
	prefix, from string
	to           string
	page         *clientv3.GetResponse
	revision     int64
	expires      map[clientv3.LeaseID]time.Time
}

// Export begins an export at the current revision.
func (e *Engine) Export(ctx context.Context, prefix string) (*Export, error) {
	x := &Export{engine: e, prefix: prefix, from: prefix, to: clientv3.GetPrefixRangeEnd(prefix), expires: map[clientv3.LeaseID]time.Time{}}
	return x, x.read(ctx)
}

// Revision is the revision of the export.
func (x *Export) Revision() uint64 { return uint64(x.revision) }

// Next returns the next key, with the time at which it expires, and io.EOF at the end. It returns ErrChanged
// instead of io.EOF if keys with the prefix were created or updated since the export began.
func (x *Export) Next(ctx context.Context) (storage.Entry, error) {
	if len(x.page.Kvs) == 0 {
		if !x.page.More {
			return storage.Entry{}, x.end(ctx)
		}
		if err := x.read(ctx); err != nil {
			return storage.Entry{}, err
		}
		if len(x.page.Kvs) == 0 {
			return storage.Entry{}, x.end(ctx)
		}
	}
	kv := x.page.Kvs[0]
	x.page.Kvs[0] = nil
	x.page.Kvs = x.page.Kvs[1:]
	entry := storage.Entry{KeyValue: keyValue(kv)}
	if kv.Lease != 0 {
		var err error
		if entry.Expires, err = x.expiry(ctx, clientv3.LeaseID(kv.Lease)); err != nil {
			return storage.Entry{}, err
		}
	}
	return entry, nil
}

// read reads the next page.
func (x *Export) read(ctx context.Context) error {
	resp, err := x.get(ctx, x.from, pageOptions(storage.RangeOptions{}, x.to, x.revision, pageSize))
	if err != nil {
		return err
	}
	if x.revision == 0 {
		x.revision = resp.Header.Revision
	}
	x.page = resp
	if n := len(resp.Kvs); n > 0 {
		x.from = string(resp.Kvs[n-1].Key) + "\x00"
	}
	return nil
}

// end returns io.EOF, or ErrChanged.
func (x *Export) end(ctx context.Context) error {
	resp, err := x.get(ctx, x.prefix, []clientv3.OpOption{
		clientv3.WithPrefix(), clientv3.WithMinModRev(x.revision + 1), clientv3.WithKeysOnly(), clientv3.WithLimit(1),
	})
	switch {
	case err != nil:
		return err
	case len(resp.Kvs) > 0:
		return fmt.Errorf("%w: %s", ErrChanged, resp.Kvs[0].Key)
	}
	return io.EOF
}

// expiry returns when a lease expires.
func (x *Export) expiry(ctx context.Context, id clientv3.LeaseID) (time.Time, error) {
	if at, known := x.expires[id]; known {
		return at, nil
	}
	call, end, err := x.engine.begin(ctx)
	if err != nil {
		return time.Time{}, err
	}
	defer end()
	call, cancel := x.engine.bounded(call)
	defer cancel()
	at := time.Now()
	resp, err := x.engine.client.TimeToLive(call, id)
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
	case err != nil:
		return time.Time{}, x.engine.translate(ctx, err)
	case resp.TTL > 0:
		at = at.Add(time.Duration(resp.TTL) * time.Second)
	}
	x.expires[id] = at
	return at, nil
}

func (x *Export) get(ctx context.Context, from string, opts []clientv3.OpOption) (*clientv3.GetResponse, error) {
	call, end, err := x.engine.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	resp, err := x.engine.page(call, from, opts)
	return resp, x.engine.translate(ctx, err)
}
