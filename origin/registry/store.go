package registry

import (
	"context"
	"fmt"
	"path"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"

	engine "github.com/kubeweir/kubeweir/origin/storage"
)

// DefaultPrefix begins all keys of kube-apiserver (--etcd-prefix).
const DefaultPrefix = "/registry"

const defaultBookmarkPeriod = time.Minute

// StoreOptions configure a Store.
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
	// ResourcePrefix is the part of keys after the prefix: "/pods", "/apps/deployments". Keys
	// passed to the Store's methods begin with it.
	ResourcePrefix string
	GroupResource  schema.GroupResource
	// DeleteCorrupt reports objects that cannot be decrypted or decoded with an error that permits their
	// deletion with ignoreStoreReadErrorWithClusterBreakingPotential (KEP-3926).
	DeleteCorrupt bool
	// NewFunc creates an empty object, for bookmarks. Without it there are no bookmarks.
	NewFunc func() runtime.Object
}

// Store keeps the objects of one resource in an engine. It is apiserver's storage/etcd3
// with the engine in the place of etcd, apart from Watch, which also sends BOOKMARK
// events to watches that allow them. It is safe for concurrent use and holds no
// resources but those of its open watches, which end with their contexts.
type Store struct {
	storage.Interface // of storage/etcd3; its Watch is not used
	engine            engine.Engine
	codec             runtime.Codec
	transformer       value.Transformer
	versioner         storage.APIObjectVersioner
	pathPrefix        string // ends in "/"
	resourcePrefix    string
	resource          schema.GroupResource
	newFunc           func() runtime.Object
	progress          *Progress
	bookmarkPeriod    time.Duration
}

// NewStore returns a Store. It does nothing with the engine yet.
func NewStore(opts StoreOptions) (*Store, error) {
	if opts.Engine == nil || opts.Codec == nil {
		return nil, fmt.Errorf("store of %s: an engine and a codec are needed", opts.GroupResource)
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
	// Without a compactor CompactRevision is 0; only apiserver's watch cache calls it. The lease
	// manager has no reuse duration, so that it asks for each time to live as it is.
	decoder := etcd3.NewDefaultDecoder(s.codec, s.versioner)
	if opts.DeleteCorrupt {
		s.transformer = etcd3.WithCorruptObjErrorHandlingTransformer(s.transformer)
		decoder = etcd3.WithCorruptObjErrorHandlingDecoder(decoder)
	}
	etcd, err := etcd3.New(newClient(s.engine), nil, s.codec, s.newFunc, nil, s.pathPrefix, s.resourcePrefix, s.resource,
		s.transformer, etcd3.LeaseManagerConfig{}, decoder, s.versioner)
	if err != nil {
		return nil, fmt.Errorf("store of %s: %w", opts.GroupResource, err)
	}
	s.Interface = etcd
	if opts.DeleteCorrupt {
		s.Interface = etcd3.NewStoreWithUnsafeCorruptObjectDeletion(etcd, s.resource)
	}
	return s, nil
}

// Get implements storage.Interface. It is linearizable whatever resourceVersion says.
func (s *Store) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	return withRetryAfter(s.Interface.Get(ctx, key, opts, out))
}

// GetList implements storage.Interface.
func (s *Store) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	return withRetryAfter(s.Interface.GetList(ctx, key, opts, list))
}

// RequestWatchProgress implements storage.Interface: all open watches of the resource
// that allow bookmarks get one of the current revision. Progress.Request does the same
// without asking the engine for its revision.
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

// key returns the engine's key for a key of storage.Interface.
func (s *Store) key(key string, recursive bool) (string, error) {
	key, err := storage.PrepareKey(s.resourcePrefix, key, recursive)
	if err != nil {
		return "", err
	}
	return s.pathPrefix + strings.TrimPrefix(key, "/"), nil
}

// Options of the Stores that a Decorator makes.
type Options struct {
	// Engine holds the objects of all of them. It is not closed by a Store.
	Engine engine.Engine
	// Progress gets to know the open watches of all of them. Default: one of each
	// Store's own.
	Progress *Progress
	// BookmarkPeriod is how often a watch that allows bookmarks gets one at least.
	// Default: 1 min, kube-apiserver's.
	BookmarkPeriod time.Duration
}
