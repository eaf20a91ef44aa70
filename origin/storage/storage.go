// Package storage declares the revisioned key-value store that the origin keeps
// its objects in. storage/embedded is a store in the same process, storage/etcd a
// real etcd cluster; storage/storagetest is the suite that both pass.
//
// The model is etcd's (api/v3rpc): one revision counter for all keys, raised by
// every change, so that the revision of a change is the resourceVersion of the
// object it wrote. Keys are "/"-separated and ordered bytewise.
package storage

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// KeyValue is one key as it was after one change.
type KeyValue struct {
	Key   string
	Value []byte // not to be changed by anyone
	// Revision is the revision of the change that wrote the value (etcd's ModRevision).
	Revision uint64
}

// EventType is the kind of a change.
type EventType uint8

const (
	// Created: the key did not exist before.
	Created EventType = iota + 1
	// Updated: the key had another value.
	Updated
	// Deleted: the key is gone, also because its time to live ended.
	Deleted
)

// Event is one change. The Revision of its KV is the revision of the change; the value of a deleted
// key is nil.
type Event struct {
	Type EventType
	KV   KeyValue
	// Previous is what the key held before the change, nil when it was created.
	Previous *KeyValue
}

// Batch is one delivery of a Watcher.
type Batch struct {
	// Events are in the order of their revisions; those of one revision are in one
	// batch. A batch without events only reports progress.
	Events []Event
	// Revision is the newest revision that is delivered completely: no event of this
	// revision or an older one follows.
	Revision uint64
}

// RangeOptions selects the keys of a range.
type RangeOptions struct {
	// Prefix is the prefix of all keys to read. With Exact it is the only key to read.
	Prefix string
	Exact  bool
	// From is the first key to read, inclusive, "" for the first of the prefix.
	From string
	// Revision is the revision to read at, 0 for the current one. A newer one than
	// the current is a *FutureError, one that was compacted ErrCompacted.
	Revision uint64
	// Limit is the maximum number of keys to return, 0 for all.
	Limit int64
	// Count requests the number of all matching keys from From on.
	Count bool
	// KeysOnly omits the values.
	KeysOnly bool
}

// RangeResult is the result of a range.
type RangeResult struct {
	KVs []KeyValue
	// Revision is the revision read at.
	Revision uint64
	// More is true if Limit cut the result off.
	More bool
	// Count is the number of matching keys from From on, whatever the limit; only with
	// RangeOptions.Count.
	Count int64
}

// WatchOptions selects the changes of a watch.
type WatchOptions struct {
	Prefix string
	// After is exclusive: the first event is of a later revision. A revision that is not
	// reached yet is no error; no event comes before it is passed. Next returns
	// ErrCompacted if After+1 was compacted, and may do so for a change at the compacted
	// revision itself, whose Previous is gone.
	After uint64
}

// Watcher is an open watch. Next is called by one goroutine at a time, the other
// methods by any.
type Watcher interface {
	// Next waits for the next batch. The caller may use it until it calls Next again;
	// values in it are never changed. Errors are final: ErrCompacted when the
	// watcher fell behind the history, ErrClosed, ctx.Err().
	Next(ctx context.Context) (Batch, error)
	// RequestProgress makes Next return soon with a Revision of at least the
	// engine's current revision at the time of the call, even if without events.
	// It does not block; several calls may be answered at once.
	RequestProgress()
	// Close ends the watch and Next; it may be called more than once.
	Close()
}

// Precondition is the condition of a change.
type Precondition struct {
	// Revision that the key must have, 0 when it must not exist.
	Revision uint64
}

// Engine is a revisioned key-value store. It is safe for concurrent use. A change
// is durable when the call returns without an error. It has not happened, and will not,
// when the call returns a *ConflictError, ErrTooLarge, ErrClosed, or an ErrUnavailable
// that is not ErrUncertain; with any other error, those of ctx too, it may or may not have.
type Engine interface {
	// Put writes key if the precondition holds, and returns the revision of the
	// change. A ttl above 0 deletes the key that long afterwards, with an event, as
	// exactly as seconds allow; a later Put sets it anew.
	Put(ctx context.Context, key string, value []byte, expect Precondition, ttl time.Duration) (uint64, error)
	// Delete removes key if the precondition holds; its Revision must not be 0.
	Delete(ctx context.Context, key string, expect Precondition) (uint64, error)
	// Range reads keys in order.
	Range(ctx context.Context, opts RangeOptions) (RangeResult, error)
	// Watch begins a watch. Events of revisions after opts.After arrive exactly
	// once and in order. ctx bounds the beginning only; Close ends the watch.
	Watch(ctx context.Context, opts WatchOptions) (Watcher, error)
	// CurrentRevision is the revision of the last change, read linearizably: at
	// least that of every change acknowledged before the call. It is at least 1.
	CurrentRevision(ctx context.Context) (uint64, error)
	// Compact forgets the history before revision: ranges at and watches from
	// older revisions fail afterwards. Compacting again is no error.
	Compact(ctx context.Context, revision uint64) error
	// Close ends watches and waits for the engine's goroutines.
	Close() error
}

// Entry is one key of a Snapshot.
type Entry struct {
	KeyValue
	// Expires is when the key is deleted, the zero time for never.
	Expires time.Time
}

// Snapshot is all keys of a store at one revision. Changes to the store do not affect it.
type Snapshot interface {
	Revision() uint64
	// Len is the number of keys.
	Len() int
	// Each calls f for each key, in any order, until f returns an error. f must not retain the value.
	Each(ctx context.Context, f func(Entry) error) error
	// Close releases the snapshot. Until then the store cannot remove what the snapshot needs.
	Close() error
}

// Snapshotter is an Engine that provides snapshots.
type Snapshotter interface {
	// Snapshot returns the keys at the current revision. It has every change that was acknowledged before
	// the call.
	Snapshot(ctx context.Context) (Snapshot, error)
}

// Errors of every engine.
var (
	// ErrCompacted: the history does not go back that far.
	ErrCompacted = errors.New("the revision was compacted")
	// ErrClosed: the engine or the watcher was closed.
	ErrClosed = errors.New("the store is closed")
	// ErrTooLarge: the value exceeds the limit of the engine (1.5 MiB, as for etcd).
	ErrTooLarge = errors.New("the value is too large")
	// ErrUnavailable: the store cannot be written or reached now (disk full, no
	// quorum); wrapped with the reason.
	ErrUnavailable = errors.New("the store is unavailable")
	// ErrNoRoom: the store only accepts deletions because its disk is full. It is an
	// ErrUnavailable, too, but retrying alone does not help.
	ErrNoRoom = fmt.Errorf("%w: it has no room", ErrUnavailable)
	// ErrUncertain: the outcome of the change is unknown; it may still be made. It is an
	// ErrUnavailable, too.
	ErrUncertain = errors.New("whether the change was made is not known")
)

// Uncertain wraps err, the error of a change whose outcome is unknown, as an ErrUncertain.
func Uncertain(err error) error { return fmt.Errorf("%w: %w", ErrUncertain, err) }

// ConflictError is the error of a change whose precondition did not hold.
type ConflictError struct {
	Key string
	// Current is the current state of the key, nil if it does not exist.
	Current *KeyValue
}

func (e *ConflictError) Error() string {
	if e.Current == nil {
		return fmt.Sprintf("%s does not exist", e.Key)
	}
	return fmt.Sprintf("%s exists at revision %d", e.Key, e.Current.Revision)
}

// FutureError is the error of a range at a revision that is not reached yet.
type FutureError struct{ Current uint64 }

func (e *FutureError) Error() string {
	return fmt.Sprintf("the revision is newer than the current one, %d", e.Current)
}
