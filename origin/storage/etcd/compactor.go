package etcd

import (
	"context"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// compactRevKey and its protocol are kube-apiserver's (storage/etcd3/compact.go), so that any
	// number of kube-apiservers and kubeweirs together compact one etcd once per interval. The key's
	// version counts compactions: the process that raises it compacts, the others wait for another
	// interval. Its value is the compacted revision, which kube-apiserver reads.
	compactRevKey             = "compact_rev_key"
	defaultCompactionInterval = 5 * time.Minute
	// compactTimeout bounds one round, so that an etcd that hangs does not end compaction for good.
	compactTimeout = time.Minute
)

// A compactor drops history that is older than an interval, one interval after it was current.
type compactor struct {
	engine   *Engine
	interval time.Duration

	// version is the key's when this compactor last saw it; used by run only.
	version int64
	// revision was current an interval ago, 0 before the first round.
	revision int64
}

func (c *compactor) run() {
	ticker := time.NewTicker(c.interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-c.engine.ctx.Done():
			return
		}
		ctx, cancel := context.WithTimeout(c.engine.ctx, compactTimeout)
		compacted, err := c.round(ctx)
		cancel()
		switch {
		case c.engine.ctx.Err() != nil:
		case err != nil:
			c.engine.log.Warn("etcd was not compacted", "error", err)
		case compacted > 0:
			c.engine.metrics.compacted.Set(float64(compacted))
			c.engine.log.Debug("etcd is compacted", "revision", compacted)
		}
	}
}

// round compacts at the revision of the round before, unless another process has compacted since.
// It returns the compacted revision of etcd, 0 if unknown.
func (c *compactor) round(ctx context.Context) (compacted int64, err error) {
	started := time.Now()
	resp, err := c.engine.client.Txn(ctx).
		If(clientv3.Compare(clientv3.Version(compactRevKey), "=", c.version)).
		Then(clientv3.OpPut(compactRevKey, strconv.FormatInt(c.revision, 10))).
		Else(clientv3.OpGet(compactRevKey)).
		Commit()
	if err := c.engine.done(ctx, "compact", started, err); err != nil {
		return 0, err
	}
	target := c.revision
	c.revision = resp.Header.Revision
	if !resp.Succeeded {
		c.version = 0
		kvs := resp.Responses[0].GetResponseRange().Kvs
		if len(kvs) == 0 {
			return 0, nil // somebody removed the key; the next round begins it anew
		}
		c.version = kvs[0].Version
		if compacted, err = strconv.ParseInt(string(kvs[0].Value), 10, 64); err != nil {
			return 0, nil // not ours to mend; the next round overwrites it
		}
		return compacted, nil
	}
	c.version++
	if target == 0 {
		return 0, nil // how old anything is, is known from the next round on
	}
	return target, c.engine.Compact(ctx, uint64(target))
}
