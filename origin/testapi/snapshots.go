package testapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/kubeweir/kubeweir/origin/storage"
)

const (
	// maxSnapshots and maxSnapshotBytes bound the memory of all snapshots.
	maxSnapshots     = 32
	maxSnapshotBytes = 512 << 20
	// restorePasses is how often a restore tries again after somebody else has changed an object.
	restorePasses = 5
	// Initial is the name of the snapshot that reset restores.
	Initial = ""
)

var (
	errNoSnapshot = errors.New("there is no snapshot of this name")
	errTooMany    = fmt.Errorf("there are %d snapshots or %d MiB already; delete one", maxSnapshots, maxSnapshotBytes>>20)
	errBusy       = errors.New("objects changed all the time during the restore; stop the controllers that change them, and restore again")
)

// Snapshots are saved states of a store. They are safe for concurrent use.
type Snapshots struct {
	engine   storage.Engine
	prefix   string // of all keys, with a slash at its end
	eventTTL time.Duration

	mu    sync.Mutex                   // held during a restore, too
	saved map[string]map[string][]byte // guarded by mu: values by key by name
}

// NewSnapshots returns the snapshots of the keys with prefix. Restored Events expire after eventTTL.
func NewSnapshots(engine storage.Engine, prefix string, eventTTL time.Duration) *Snapshots {
	return &Snapshots{engine: engine, prefix: strings.TrimSuffix(prefix, "/") + "/", eventTTL: eventTTL, saved: make(map[string]map[string][]byte)}
}

// Save saves all objects under a name, in place of an earlier snapshot of that name.
func (s *Snapshots) Save(ctx context.Context, name string) error {
	s.mu.Lock() // before the read: a restore changes the objects
	defer s.mu.Unlock()
	kvs, err := s.read(ctx)
	if err != nil {
		return err
	}
	values := make(map[string][]byte, len(kvs))
	for _, kv := range kvs {
		values[kv.Key] = kv.Value
	}
	size, n := sizeOf(values), 1
	for other, saved := range s.saved {
		if other != name && other != Initial {
			size, n = size+sizeOf(saved), n+1
		}
	}
	if name != Initial && (n > maxSnapshots || size > maxSnapshotBytes) {
		return errTooMany
	}
	s.saved[name] = values
	return nil
}

func sizeOf(values map[string][]byte) (size int) {
	for key, value := range values {
		size += len(key) + len(value)
	}
	return size
}

// Delete deletes a snapshot.
func (s *Snapshots) Delete(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.saved[name] == nil {
		return errNoSnapshot
	}
	delete(s.saved, name)
	return nil
}

// Restore deletes objects that are not in the snapshot, and writes those that differ; Pods that differ
// are deleted first. Watches see these changes; versions do not go back.
func (s *Snapshots) Restore(ctx context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	saved := s.saved[name]
	if saved == nil {
		return errNoSnapshot
	}
	for range restorePasses {
		conflicts, err := s.restore(ctx, saved)
		if err != nil || !conflicts {
			return err
		}
	}
	return errBusy
}

// Forget forgets all earlier versions, so that lists and watches from them get 410.
func (s *Snapshots) Forget(ctx context.Context) error {
	revision, err := s.engine.CurrentRevision(ctx)
	if err != nil {
		return err
	}
	return s.engine.Compact(ctx, revision)
}

// restore makes one pass. It reports whether somebody else changed an object meanwhile.
func (s *Snapshots) restore(ctx context.Context, saved map[string][]byte) (conflicts bool, err error) {
	kvs, err := s.read(ctx)
	if err != nil {
		return false, err
	}
	attempt := func(_ uint64, err error) error {
		var conflict *storage.ConflictError
		if errors.As(err, &conflict) {
			conflicts = true
			return nil
		}
		return err
	}
	present := make(map[string]storage.KeyValue, len(kvs))
	var extra, differing []string
	for _, kv := range kvs {
		present[kv.Key] = kv
		if _, ok := saved[kv.Key]; !ok {
			extra = append(extra, kv.Key)
		}
	}
	for key, value := range saved {
		kv, ok := present[key]
		if ok && bytes.Equal(kv.Value, value) {
			continue
		}
		differing = append(differing, key)
		if ok && strings.HasPrefix(key, s.prefix+"pods/") {
			// kube-scheduler exits when it sees a Pod change its node.
			extra = append(extra, key)
		}
	}
	// Definitions outlive their objects.
	s.definitionsFirst(extra)
	for i := range extra {
		key := extra[len(extra)-1-i]
		if err := attempt(s.engine.Delete(ctx, key, storage.Precondition{Revision: present[key].Revision})); err != nil {
			return false, err
		}
		delete(present, key)
	}
	s.definitionsFirst(differing)
	for _, key := range differing {
		var ttl time.Duration
		if strings.HasPrefix(key, s.prefix+"events/") {
			ttl = s.eventTTL
		}
		if err := attempt(s.engine.Put(ctx, key, saved[key], storage.Precondition{Revision: present[key].Revision}, ttl)); err != nil {
			return false, err
		}
	}
	return conflicts, nil
}

// definitionsFirst sorts CustomResourceDefinitions before other keys.
func (s *Snapshots) definitionsFirst(keys []string) {
	definitions := s.prefix + "apiextensions.k8s.io/customresourcedefinitions/"
	sort.Slice(keys, func(i, j int) bool {
		a, b := strings.HasPrefix(keys[i], definitions), strings.HasPrefix(keys[j], definitions)
		if a != b {
			return a
		}
		return keys[i] < keys[j]
	})
}

// read returns all keys but those that API servers renew for themselves.
func (s *Snapshots) read(ctx context.Context) ([]storage.KeyValue, error) {
	all, err := s.engine.Range(ctx, storage.RangeOptions{Prefix: s.prefix})
	if err != nil {
		return nil, err
	}
	var kvs []storage.KeyValue
	for _, kv := range all.KVs {
		if !strings.HasPrefix(kv.Key, s.prefix+"masterleases/") {
			kvs = append(kvs, kv)
		}
	}
	return kvs, nil
}
