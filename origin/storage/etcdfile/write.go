package etcdfile

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/kubeweir/kubeweir/origin/storage"
)

// buckets are those that etcd expects.
var buckets = []string{"alarm", "auth", "authRoles", "authUsers", "cluster", "key", "lease", "members", "members_removed", "meta"}

// batchSize is how many bytes of keys and values are written in one transaction.
const batchSize = 8 << 20

// Write writes a snapshot to path, which must be an empty file. current is its revision: older ones are
// compacted. each calls its argument for each key, in any order. The time to live of keys that expire begins
// at now.
func Write(path string, current uint64, now time.Time, each func(func(storage.Entry) error) error) error {
	if current > math.MaxInt64 {
		return fmt.Errorf("the revision %d is too high for etcd", current)
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{NoSync: true, NoFreelistSync: true})
	if err != nil {
		return err
	}
	w := &writer{db: db, current: current, now: now, leases: map[int64]int64{}, changes: map[uint64]uint64{}}
	if err := errors.Join(w.run(each), db.Close()); err != nil {
		return err
	}
	return appendSum(path)
}

type writer struct {
	db      *bolt.DB
	tx      *bolt.Tx
	size    int // of the transaction
	current uint64
	now     time.Time
	leases  map[int64]int64   // lease of each expiry, in seconds of Unix time
	changes map[uint64]uint64 // number of keys with each revision
}

func (w *writer) run(each func(func(storage.Entry) error) error) (err error) {
	if w.tx, err = w.db.Begin(true); err != nil {
		return err
	}
	defer func() { _ = w.tx.Rollback() }() // does nothing after Commit
	for _, name := range buckets {
		if _, err := w.tx.CreateBucket([]byte(name)); err != nil {
			return err
		}
	}
	meta := w.tx.Bucket([]byte("meta"))
	for _, key := range []string{"finishedCompactRev", "scheduledCompactRev"} {
		if err := meta.Put([]byte(key), revision(w.current, 0)); err != nil {
			return err
		}
	}
	if err := each(w.put); err != nil {
		return err
	}
	return w.tx.Commit()
}

// put writes a key, and now and then commits.
func (w *writer) put(e storage.Entry) error {
	if e.Revision < 2 || e.Revision > w.current {
		return fmt.Errorf("the key %s has the revision %d, which must be from 2 to %d", e.Key, e.Revision, w.current)
	}
	if w.size >= batchSize {
		if err := w.tx.Commit(); err != nil {
			return err
		}
		var err error
		if w.tx, err = w.db.Begin(true); err != nil {
			return err
		}
		w.size = 0
	}
	lease, err := w.lease(e.Expires)
	if err != nil {
		return err
	}
	rev := int64(e.Revision)
	value, err := proto.Marshal(&mvccpb.KeyValue{Key: []byte(e.Key), Value: e.Value, CreateRevision: rev, ModRevision: rev, Version: 1, Lease: lease})
	if err != nil {
		return err
	}
	sub := w.changes[e.Revision]
	w.changes[e.Revision]++
	w.size += len(value)
	return w.tx.Bucket([]byte("key")).Put(revision(e.Revision, sub), value)
}

// lease returns the lease of keys that expire at a time, 0 for never. Keys of the same minute share one.
func (w *writer) lease(expires time.Time) (int64, error) {
	if expires.IsZero() {
		return 0, nil
	}
	end := (expires.Unix() + 59) / 60 * 60
	if id := w.leases[end]; id != 0 {
		return id, nil
	}
	id := int64(len(w.leases) + 1)
	w.leases[end] = id
	ttl := max(end-w.now.Unix(), 1)
	// leasepb.Lease: ID, TTL
	value := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(id))
	value = protowire.AppendVarint(protowire.AppendTag(value, 2, protowire.VarintType), uint64(ttl))
	return id, w.tx.Bucket([]byte("lease")).Put(binary.BigEndian.AppendUint64(nil, uint64(id)), value)
}

// revision is a revision as etcd stores it: sub numbers the changes of one transaction.
func revision(main, sub uint64) []byte {
	return binary.BigEndian.AppendUint64(append(binary.BigEndian.AppendUint64(nil, main), '_'), sub)
}

// appendSum appends the SHA-256 of a file to it.
func appendSum(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return err
	}
	if _, err := f.Write(sum.Sum(nil)); err != nil {
		return err
	}
	return f.Sync()
}
