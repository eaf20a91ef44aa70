package registry

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"k8s.io/apimachinery/pkg/api/apitesting"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
	"k8s.io/apiserver/pkg/storage/value"

	engine "github.com/kubeweir/kubeweir/origin/storage"
	"github.com/kubeweir/kubeweir/origin/storage/embedded"
)

// testCodec encodes as apiserver's own storage tests do: example.k8s.io/v1, in JSON.
func testCodec(t testing.TB) runtime.Codec {
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

// testStore is a Store of example pods below "/pods/", on an engine of its own.
type testStore struct {
	*Store
	engine      *countingEngine
	prefixed    *storagetesting.PrefixTransformer
	transformer *transformers
}

// valuePrefix is what the tests' transformer puts before each value.
const valuePrefix = "test!"

func newTestStore(t testing.TB, change ...func(*StoreOptions)) *testStore {
	t.Helper()
	s := &testStore{
		prefixed:    storagetesting.NewPrefixTransformer([]byte(valuePrefix), false),
		transformer: new(transformers),
	}
	s.transformer.set(s.prefixed)
	opts := StoreOptions{
		Codec:          testCodec(t),
		Transformer:    s.transformer,
		ResourcePrefix: "/pods/",
		GroupResource:  schema.GroupResource{Resource: "pods"},
		NewFunc:        func() runtime.Object { return &example.Pod{} },
	}
	for _, c := range change {
		c(&opts)
	}
	if opts.Engine == nil {
		opts.Engine = newEngine(t)
	}
	s.engine = &countingEngine{Engine: opts.Engine}
	opts.Engine = s.engine
	var err error
	if s.Store, err = NewStore(opts); err != nil {
		t.Fatal(err)
	}
	return s
}

// newEngine is an engine without files.
func newEngine(t testing.TB) engine.Engine {
	t.Helper()
	e, err := embedded.Open(embedded.Options{Dir: "data", FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// UpdatePrefixTransformer implements storagetesting.InterfaceWithPrefixTransformer.
func (s *testStore) UpdatePrefixTransformer(modify storagetesting.PrefixTransformerModifier) func() {
	changed := *s.prefixed
	s.transformer.set(modify(&changed))
	return func() { s.transformer.set(s.prefixed) }
}

// compact and increaseRevision are what apiserver's tests do behind the Store's back.
// They know that kube-apiserver's compaction is a change itself.
func (s *testStore) compact(ctx context.Context, t *testing.T, resourceVersion string) {
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

func (s *testStore) increaseRevision(ctx context.Context, t *testing.T) int64 {
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
func (s *testStore) stored(ctx context.Context, t *testing.T, key string) {
	t.Helper()
	result, err := s.engine.Range(ctx, engine.RangeOptions{Prefix: DefaultPrefix + key, Exact: true})
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

// reads checks how many values a list read and how often it asked the engine for them.
func (s *testStore) reads(t *testing.T, page, values uint64) {
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
