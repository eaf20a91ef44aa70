package registry

import (
	"context"
	"errors"
	"fmt"
	"path"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"

	engine "github.com/kubeweir/kubeweir/origin/storage"
)

// DefaultPrefix begins all keys of kube-apiserver (--etcd-prefix).
const DefaultPrefix = "/registry"

const (
	defaultBookmarkPeriod = time.Minute
	// sizeSample is how many objects the estimate of their average size is made from.
	sizeSample = 500
)

// StoreOptions say what a Store keeps and how.
type StoreOptions struct {
	Options
	// Codec encodes objects into the stored version and decodes them into the one
	// that the caller works with.
	Codec runtime.Codec
	// Transformer changes values on their way to and from the engine (encryption at
	// rest). Default: none, and an error for values that are encrypted.
	Transformer value.Transformer
	// Prefix begins every key. Default: DefaultPrefix.
	Prefix string
	// ResourcePrefix is what keys go on with: "/pods", "/apps/deployments". Keys given
	// to the Store's methods begin with it.
	ResourcePrefix string
	GroupResource  schema.GroupResource
	// NewFunc makes an empty object, for bookmarks. Without it there are none.
	NewFunc func() runtime.Object
}

// Store keeps the objects of one resource in an engine. It implements
// storage.Interface with the behaviour of apiserver's storage/etcd3, and beyond it
// sends BOOKMARK events to watches that allow them. It is safe for concurrent use and
// holds no resources but those of its open watches, which end with their contexts.
type Store struct {
	engine         engine.Engine
	codec          runtime.Codec
	transformer    value.Transformer
	versioner      storage.APIObjectVersioner
	pathPrefix     string // ends in "/"
	resourcePrefix string
	resource       schema.GroupResource
	newFunc        func() runtime.Object
	progress       *Progress
	bookmarkPeriod time.Duration
	estimateSizes  atomic.Bool
}

var _ storage.Interface = (*Store)(nil)

// NewStore returns a Store. It does nothing with the engine yet.
func NewStore(opts StoreOptions) (*Store, error) {
	switch {
	case opts.Engine == nil || opts.Codec == nil:
		return nil, fmt.Errorf("store of %s: an engine and a codec are needed", opts.GroupResource)
	case opts.ResourcePrefix == "" || opts.ResourcePrefix == "/" || opts.ResourcePrefix[0] != '/':
		return nil, fmt.Errorf("store of %s: the resource prefix %q is not a path", opts.GroupResource, opts.ResourcePrefix)
	}
	s := &Store{
		engine:         opts.Engine,
		codec:          opts.Codec,
		transformer:    opts.Transformer,
		pathPrefix:     DefaultPrefix + "/",
		resourcePrefix: opts.ResourcePrefix,
		resource:       opts.GroupResource,
		newFunc:        opts.NewFunc,
		progress:       opts.Progress,
		bookmarkPeriod: opts.BookmarkPeriod,
	}
	if opts.Prefix != "" {
		s.pathPrefix = strings.TrimSuffix(path.Join("/", opts.Prefix), "/") + "/"
	}
	if s.transformer == nil {
		s.transformer = identity.NewEncryptCheckTransformer()
	}
	if s.progress == nil {
		s.progress = new(Progress)
	}
	if s.bookmarkPeriod <= 0 {
		s.bookmarkPeriod = defaultBookmarkPeriod
	}
	return s, nil
}

// Versioner implements storage.Interface.
func (s *Store) Versioner() storage.Versioner { return s.versioner }

// Get implements storage.Interface. It is linearizable whatever resourceVersion asks.
func (s *Store) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	key, err := s.key(key, false)
	if err != nil {
		return err
	}
	result, err := s.engine.Range(ctx, engine.RangeOptions{Prefix: key, Exact: true})
	if err != nil {
		return engineError(err)
	}
	if err := s.notOlderThan(opts.ResourceVersion, result.Revision); err != nil {
		return err
	}
	switch {
	case len(result.KVs) > 0:
		data, _, err := s.transformer.TransformFromStorage(ctx, result.KVs[0].Value, dataContext(key))
		if err != nil {
			return storage.NewInternalError(err)
		}
		return s.decodeInto(data, out, result.KVs[0].Revision)
	case opts.IgnoreNotFound:
		return runtime.SetZeroValue(out)
	default:
		return storage.NewKeyNotFoundError(key, 0)
	}
}

// Stats implements storage.Interface.
func (s *Store) Stats(ctx context.Context) (storage.Stats, error) {
	key, err := s.key(s.resourcePrefix, true)
	if err != nil {
		return storage.Stats{}, err
	}
	sized := s.estimateSizes.Load()
	opts := engine.RangeOptions{Prefix: key, Count: true, Limit: 1, KeysOnly: !sized}
	if sized {
		opts.Limit = sizeSample
	}
	result, err := s.engine.Range(ctx, opts)
	if err != nil {
		return storage.Stats{}, engineError(err)
	}
	stats := storage.Stats{ObjectCount: result.Count}
	if sized && len(result.KVs) > 0 {
		var size int64
		for _, kv := range result.KVs {
			size += int64(len(kv.Value))
		}
		stats.EstimatedAverageObjectSizeBytes = size / int64(len(result.KVs))
	}
	return stats, nil
}

// EnableResourceSizeEstimation implements storage.Interface. Stats then reads some
// objects of the engine, so that the keys function is not needed.
func (s *Store) EnableResourceSizeEstimation(keys storage.KeysFunc) error {
	if keys == nil {
		return errors.New("KeysFunc cannot be nil")
	}
	if s.estimateSizes.Swap(true) {
		return errors.New("resourceSizeEstimator already enabled")
	}
	return nil
}

// ReadinessCheck implements storage.Interface. An engine is ready once it is open.
func (s *Store) ReadinessCheck() error { return nil }

// RequestWatchProgress implements storage.Interface: all open watches of the resource
// that allow bookmarks get one of the current revision. Who knows the revision
// already spares the engine a question with Progress.Request.
func (s *Store) RequestWatchProgress(ctx context.Context) error {
	revision, err := s.engine.CurrentRevision(ctx)
	if err != nil {
		return engineError(err)
	}
	s.progress.Request(s.resource, revision)
	return nil
}

// GetCurrentResourceVersion implements storage.Interface.
func (s *Store) GetCurrentResourceVersion(ctx context.Context) (uint64, error) {
	revision, err := s.engine.CurrentRevision(ctx)
	return revision, engineError(err)
}

// CompactRevision implements storage.Interface: 0, which stands for none observed.
// Only apiserver's watch cache asks.
func (s *Store) CompactRevision() int64 { return 0 }

// key is the engine's key of what storage.Interface calls key.
func (s *Store) key(key string, recursive bool) (string, error) {
	key, err := storage.PrepareKey(s.resourcePrefix, key, recursive)
	if err != nil {
		return "", err
	}
	return s.pathPrefix + strings.TrimPrefix(key, "/"), nil
}

// notOlderThan refuses a revision that is older than resourceVersion asks for.
func (s *Store) notOlderThan(resourceVersion string, revision uint64) error {
	if resourceVersion == "" {
		return nil
	}
	minimum, err := s.versioner.ParseResourceVersion(resourceVersion)
	if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("invalid resource version: %v", err))
	}
	if minimum > revision {
		return storage.NewTooLargeResourceVersionError(minimum, revision, tooLargeRetry)
	}
	return nil
}

// encode is the object as it is stored, before the transformer.
func (s *Store) encode(obj runtime.Object) ([]byte, error) {
	if err := s.versioner.PrepareObjectForStorage(obj); err != nil {
		return nil, fmt.Errorf("PrepareObjectForStorage failed: %w", err)
	}
	return runtime.Encode(s.codec, obj)
}

// decodeInto sets out to the object in data. Objects without metadata have no version.
func (s *Store) decodeInto(data []byte, out runtime.Object, revision uint64) error {
	if _, _, err := s.codec.Decode(data, nil, out); err != nil {
		return err
	}
	_ = s.versioner.UpdateObject(out, revision)
	return nil
}

// decode makes the object in data.
func (s *Store) decode(data []byte, revision uint64) (runtime.Object, error) {
	obj, err := runtime.Decode(s.codec, data)
	if err != nil {
		return nil, err
	}
	if err := s.versioner.UpdateObject(obj, revision); err != nil {
		return nil, fmt.Errorf("set resourceVersion %d: %w", revision, err)
	}
	return obj, nil
}

// newLike makes an empty object of out's type; an unstructured one keeps its kind.
func newLike(out runtime.Object) (runtime.Object, error) {
	if u, ok := out.(runtime.Unstructured); ok {
		return u.NewEmptyInstance(), nil
	}
	t := reflect.TypeOf(out)
	if t == nil || t.Kind() != reflect.Pointer || reflect.ValueOf(out).IsNil() {
		return nil, fmt.Errorf("unable to convert output object to pointer: %T", out)
	}
	return reflect.New(t.Elem()).Interface().(runtime.Object), nil
}

// dataContext binds an encrypted value to its key.
type dataContext string

// AuthenticatedData implements value.Context.
func (c dataContext) AuthenticatedData() []byte { return []byte(c) }
