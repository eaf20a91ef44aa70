package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"

	engine "github.com/kubeweir/kubeweir/origin/storage"
)

// Create implements storage.Interface.
func (s *Store) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	key, err := s.key(key, false)
	if err != nil {
		return err
	}
	if version, err := s.versioner.ObjectResourceVersion(obj); err == nil && version != 0 {
		return storage.ErrResourceVersionSetOnCreate
	}
	data, err := s.encode(obj)
	if err != nil {
		return err
	}
	revision, err := s.put(ctx, key, data, 0, ttl)
	var conflict *engine.ConflictError
	switch {
	case errors.As(err, &conflict):
		return storage.NewKeyExistsError(key, 0)
	case err != nil:
		return err
	case out == nil:
		return nil
	}
	return s.decodeInto(data, out, revision)
}

// put writes data if the key has the expected revision; 0: if there is none.
func (s *Store) put(ctx context.Context, key string, data []byte, expected, ttl uint64) (uint64, error) {
	stored, err := s.transformer.TransformToStorage(ctx, data, dataContext(key))
	if err != nil {
		return 0, storage.NewInternalError(err)
	}
	revision, err := s.engine.Put(ctx, key, stored, engine.Precondition{Revision: expected}, time.Duration(ttl)*time.Second)
	return revision, engineError(err)
}

// state is what a change starts from.
type state struct {
	obj      runtime.Object
	data     []byte // obj as stored, before the transformer
	revision uint64 // 0: there is no object
	// stale: the transformer wants the value written anew, in another form.
	stale bool
	// current: it was read from the engine. Otherwise it is the caller's suggestion,
	// and a refusal that rests on it has to be looked at twice.
	current bool
}

// target is the object that a change is about.
type target struct {
	*Store
	key            string
	out            runtime.Object // a new object is of its type
	ignoreNotFound bool
}

// start is the suggested state, or the one in the engine if there is no suggestion.
func (t target) start(ctx context.Context, suggestion runtime.Object) (state, error) {
	if suggestion == nil {
		return t.read(ctx)
	}
	revision, err := t.versioner.ObjectResourceVersion(suggestion)
	if err != nil {
		return state{}, fmt.Errorf("couldn't get resource version: %w", err)
	}
	if revision == 0 {
		return t.read(ctx)
	}
	data, err := t.encode(suggestion)
	if err != nil {
		return state{}, err
	}
	// encode took the version away.
	_ = t.versioner.UpdateObject(suggestion, revision)
	return state{obj: suggestion, data: data, revision: revision}, nil
}

// read is the state in the engine.
func (t target) read(ctx context.Context) (state, error) {
	result, err := t.engine.Range(ctx, engine.RangeOptions{Prefix: t.key, Exact: true})
	if err != nil {
		return state{}, engineError(err)
	}
	if len(result.KVs) == 0 {
		return t.state(ctx, nil)
	}
	return t.state(ctx, &result.KVs[0])
}

// state is that of a key as the engine gave it, nil if there is none.
func (t target) state(ctx context.Context, kv *engine.KeyValue) (state, error) {
	if kv == nil && !t.ignoreNotFound {
		return state{}, storage.NewKeyNotFoundError(t.key, 0)
	}
	obj, err := newLike(t.out)
	if err != nil {
		return state{}, err
	}
	st := state{obj: obj, current: true}
	if kv == nil {
		return st, runtime.SetZeroValue(obj)
	}
	st.revision = kv.Revision
	st.data, st.stale, err = t.transformer.TransformFromStorage(ctx, kv.Value, dataContext(t.key))
	if err != nil {
		return state{}, storage.NewInternalError(err)
	}
	return st, t.decodeInto(st.data, obj, kv.Revision)
}

// reconsider returns the state to try again with, after cause spoke against st. If st
// was what the engine holds, cause is the answer.
func (t target) reconsider(ctx context.Context, st state, cause error) (state, error) {
	if st.current {
		return state{}, cause
	}
	fresh, err := t.read(ctx)
	switch {
	case err != nil:
		return state{}, err
	case fresh.revision == st.revision:
		return state{}, cause
	}
	return fresh, nil
}

// Delete implements storage.Interface. out is set to the last state of the object, with
// the revision of its deletion.
func (s *Store) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validateDeletion storage.ValidateObjectFunc, suggestion runtime.Object, _ storage.DeleteOptions,
) error {
	key, err := s.key(key, false)
	if err != nil {
		return err
	}
	t := target{Store: s, key: key, out: out}
	st, err := t.start(ctx, suggestion)
	for {
		if err != nil {
			return err
		}
		if err = preconditions.Check(key, st.obj); err == nil {
			err = validateDeletion(ctx, st.obj)
		}
		if err != nil {
			st, err = t.reconsider(ctx, st, err)
			continue
		}
		revision, deleteErr := s.engine.Delete(ctx, key, engine.Precondition{Revision: st.revision})
		var conflict *engine.ConflictError
		switch {
		case errors.As(deleteErr, &conflict):
			st, err = t.state(ctx, conflict.Current)
		case deleteErr != nil:
			return engineError(deleteErr)
		default:
			return s.decodeInto(st.data, out, revision)
		}
	}
}

// GuaranteedUpdate implements storage.Interface. What tryUpdate gives back unchanged,
// byte for byte, is not written.
func (s *Store) GuaranteedUpdate(
	ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, suggestion runtime.Object,
) error {
	key, err := s.key(key, false)
	if err != nil {
		return err
	}
	t := target{Store: s, key: key, out: out, ignoreNotFound: ignoreNotFound}
	st, err := t.start(ctx, suggestion)
	for {
		if err != nil {
			return err
		}
		var data []byte
		var ttl uint64
		data, ttl, err = s.update(key, st, preconditions, tryUpdate)
		var refused refusedError
		if errors.As(err, &refused) {
			st, err = t.reconsider(ctx, st, refused.cause)
			continue
		}
		if err != nil {
			return err
		}
		if !st.stale && bytes.Equal(data, st.data) {
			if st.current {
				return s.decodeInto(st.data, out, st.revision)
			}
			// Only the engine can tell that nothing is to be written. If the object is
			// another now, tryUpdate is asked again.
			fresh, readErr := t.read(ctx)
			if readErr != nil {
				return readErr
			}
			if fresh.stale || !bytes.Equal(data, fresh.data) {
				st = fresh
				continue
			}
			return s.decodeInto(fresh.data, out, fresh.revision)
		}
		revision, putErr := s.put(ctx, key, data, st.revision, ttl)
		var conflict *engine.ConflictError
		switch {
		case errors.As(putErr, &conflict):
			st, err = t.state(ctx, conflict.Current)
		case putErr != nil:
			return putErr
		default:
			return s.decodeInto(data, out, revision)
		}
	}
}

// refusedError is a refusal that a newer state may change.
type refusedError struct{ cause error }

func (e refusedError) Error() string { return e.cause.Error() }

// update is what tryUpdate makes of st, encoded, and its time to live in seconds.
func (s *Store) update(key string, st state, preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc) ([]byte, uint64, error) {
	if err := preconditions.Check(key, st.obj); err != nil {
		return nil, 0, refusedError{err}
	}
	updated, ttl, err := tryUpdate(st.obj, storage.ResponseMeta{ResourceVersion: st.revision})
	if err != nil {
		return nil, 0, refusedError{err}
	}
	data, err := s.encode(updated)
	if err != nil || ttl == nil {
		return data, 0, err
	}
	return data, *ttl, nil
}
