package registry

import (
	"context"
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

	engine "github.com/kubeweir/kubeweir/origin/storage"
	"github.com/kubeweir/kubeweir/origin/storage/embedded"
)

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

// testStore is a Store of example pods in JSON, below "/registry/pods/".
type testStore struct {
	*Store
	engine *countingEngine
}

// newTestStore makes a Store as change has it, on an engine of its own if change gives
// it none.
func newTestStore(t testing.TB, change ...func(*StoreOptions)) *testStore {
	t.Helper()
	opts := StoreOptions{
		Codec:          testCodec(t),
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
	s := &testStore{engine: &countingEngine{Engine: opts.Engine}}
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

// otherChange writes a key that is none of the Store's and returns the revision.
func (s *testStore) otherChange(ctx context.Context, t *testing.T) uint64 {
	t.Helper()
	revision, err := s.engine.Put(ctx, "/other", nil, engine.Precondition{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	return revision
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
