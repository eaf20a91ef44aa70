package registrytest

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/apitesting"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/kubeweir/kubeweir/origin/registry"
	engine "github.com/kubeweir/kubeweir/origin/storage"
)

// codec encodes as apiserver's own storage tests do: example.k8s.io/v1, in JSON.
func codec(t *testing.T) runtime.Codec {
	t.Helper()
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion)
	for _, add := range []func(*runtime.Scheme) error{example.AddToScheme, examplev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return apitesting.TestCodec(serializer.NewCodecFactory(scheme), examplev1.SchemeGroupVersion)
}

// store is a registry.Store of example pods below "/pods/".
type store struct {
	*registry.Store
	codec       runtime.Codec
	engine      *countingEngine
	prefixed    *storagetesting.PrefixTransformer
	transformer *transformers
}

// valuePrefix is what the transformer puts before each value.
const valuePrefix = "test!"

func newStore(t *testing.T, e engine.Engine, bookmarkPeriod time.Duration) *store {
	t.Helper()
	s := &store{
		codec:       codec(t),
		engine:      &countingEngine{Engine: e},
		prefixed:    storagetesting.NewPrefixTransformer([]byte(valuePrefix), false),
		transformer: new(transformers),
	}
	s.transformer.set(s.prefixed)
	var err error
	s.Store, err = registry.NewStore(registry.StoreOptions{
		Options:        registry.Options{Engine: s.engine, BookmarkPeriod: bookmarkPeriod},
		Codec:          s.codec,
		Transformer:    s.transformer,
		ResourcePrefix: "/pods/",
		GroupResource:  schema.GroupResource{Resource: "pods"},
		NewFunc:        func() runtime.Object { return &example.Pod{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// UpdatePrefixTransformer implements storagetesting.InterfaceWithPrefixTransformer.
func (s *store) UpdatePrefixTransformer(modify storagetesting.PrefixTransformerModifier) func() {
	changed := *s.prefixed
	s.transformer.set(modify(&changed))
	return func() { s.transformer.set(s.prefixed) }
}

// compact and increaseRevision are operations that apiserver's tests perform behind the Store's
// back. They expect that kube-apiserver's compaction is itself a change.
func (s *store) compact(ctx context.Context, t *testing.T, resourceVersion string) {
	t.Helper()
	s.increaseRevision(ctx, t)
	revision, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err == nil {
		err = s.engine.Compact(ctx, revision)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (s *store) increaseRevision(ctx context.Context, t *testing.T) int64 {
	t.Helper()
	var expected engine.Precondition
	const key = "/increaseRV"
	result, err := s.engine.Range(ctx, engine.RangeOptions{Prefix: key, Exact: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(result.KVs) > 0 {
		expected.Revision = result.KVs[0].Revision
	}
	revision, err := s.engine.Put(ctx, key, []byte("ok"), expected, 0)
	if err != nil {
		t.Fatal(err)
	}
	return int64(revision)
}

// stored checks that the engine holds the object without what is not to be stored.
func (s *store) stored(ctx context.Context, t *testing.T, key string) {
	t.Helper()
	result, err := s.engine.Range(ctx, engine.RangeOptions{Prefix: registry.DefaultPrefix + key, Exact: true})
	if err != nil || len(result.KVs) != 1 {
		t.Fatalf("%s: %d values, %v", key, len(result.KVs), err)
	}
	obj, err := runtime.Decode(s.codec, result.KVs[0].Value[len(valuePrefix):])
	if err != nil {
		t.Fatal(err)
	}
	if pod := obj.(*example.Pod); pod.ResourceVersion != "" || pod.GetSelfLink() != "" {
		t.Errorf("%s: resourceVersion %q and selfLink %q are stored", key, pod.ResourceVersion, pod.GetSelfLink())
	}
}

// keys are the engine's, of all objects.
func (s *store) keys(ctx context.Context) ([]string, error) {
	result, err := s.engine.Range(ctx, engine.RangeOptions{Prefix: registry.DefaultPrefix, KeysOnly: true})
	keys := make([]string, len(result.KVs))
	for i, kv := range result.KVs {
		keys[i] = kv.Key
	}
	return keys, err
}

// maxPage is the maximum to which pages of a list with a selector grow.
const maxPage = 10000

// reads checks how many values a list read, and how many requests it sent to the engine.
func (s *store) reads(t *testing.T, page, values uint64) {
	t.Helper()
	if n := s.prefixed.GetReadsAndReset(); n != values {
		t.Errorf("%d values read, want %d", n, values)
	}
	calls := uint64(1)
	for sum, page := uint64(1), page; page != 0 && sum < values; sum += page {
		page = min(2*page, maxPage)
		calls++
	}
	if n := s.engine.ranges.Swap(0); n != calls {
		t.Errorf("%d ranges read, want %d", n, calls)
	}
}

// countingEngine counts the ranges that are read.
type countingEngine struct {
	engine.Engine
	ranges atomic.Uint64
}

func (e *countingEngine) Range(ctx context.Context, opts engine.RangeOptions) (engine.RangeResult, error) {
	e.ranges.Add(1)
	return e.Engine.Range(ctx, opts)
}

// transformers is a transformer that can be exchanged while it is used.
type transformers struct {
	current atomic.Pointer[value.Transformer]
}

func (t *transformers) set(to value.Transformer) { t.current.Store(&to) }

func (t *transformers) TransformFromStorage(ctx context.Context, data []byte, dataCtx value.Context) ([]byte, bool, error) {
	return (*t.current.Load()).TransformFromStorage(ctx, data, dataCtx)
}

func (t *transformers) TransformToStorage(ctx context.Context, data []byte, dataCtx value.Context) ([]byte, error) {
	return (*t.current.Load()).TransformToStorage(ctx, data, dataCtx)
}
