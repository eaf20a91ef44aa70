package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	engine "github.com/kubeweir/kubeweir/origin/storage"
)

func newPod(name string) *example.Pod {
	return &example.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: "uid"}}
}

func TestKeys(t *testing.T) {
	for _, c := range []struct {
		prefix, resourcePrefix, key string
		recursive                   bool
		want                        string
	}{
		{"", "/pods", "/pods/ns/a", false, "/registry/pods/ns/a"},
		{"/registry", "/pods", "/pods/ns", true, "/registry/pods/ns/"},
		{"registry/", "/pods", "/pods", true, "/registry/pods/"},
		{"/", "/pods", "/pods/ns/a", false, "/pods/ns/a"},
		{"//custom//prefix/", "/apps/deployments", "/apps/deployments/ns/a", false, "/custom/prefix/apps/deployments/ns/a"},
		{"", "/stable.example.com/widgets", "/stable.example.com/widgets", true, "/registry/stable.example.com/widgets/"},
	} {
		s := newTestStore(t, func(o *StoreOptions) {
			o.Engine, o.Prefix, o.ResourcePrefix = newScripted(), c.prefix, c.resourcePrefix
		})
		if got, err := s.key(c.key, c.recursive); err != nil || got != c.want {
			t.Errorf("%+v: %q, %v", c, got, err)
		}
	}
}

func TestNewStoreRejects(t *testing.T) {
	good := StoreOptions{Options: Options{Engine: newScripted()}, Codec: testCodec(t), ResourcePrefix: "/pods"}
	for name, change := range map[string]func(*StoreOptions){
		"no engine":       func(o *StoreOptions) { o.Engine = nil },
		"no codec":        func(o *StoreOptions) { o.Codec = nil },
		"no prefix":       func(o *StoreOptions) { o.ResourcePrefix = "" },
		"root as prefix":  func(o *StoreOptions) { o.ResourcePrefix = "/" },
		"prefix, no path": func(o *StoreOptions) { o.ResourcePrefix = "pods" },
	} {
		opts := good
		change(&opts)
		if _, err := NewStore(opts); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// failingEngine fails what fail says; nothing else is asked of it.
type failingEngine struct {
	engine.Engine
	fail error
}

func (e failingEngine) Put(context.Context, string, []byte, engine.Precondition, time.Duration) (uint64, error) {
	return 0, e.fail
}

func (e failingEngine) Range(context.Context, engine.RangeOptions) (engine.RangeResult, error) {
	return engine.RangeResult{}, e.fail
}

func (e failingEngine) CurrentRevision(context.Context) (uint64, error) { return 0, e.fail }

// TestEngineErrors checks the responses that clients get when the engine fails. The endpoint
// handlers make a Status of each error.
func TestEngineErrors(t *testing.T) {
	for name, c := range map[string]struct {
		fail    error
		code    int32
		reason  metav1.StatusReason
		message string
		retry   int32 // Retry-After; 0 where a change may have been made
	}{
		"too large":   {engine.ErrTooLarge, http.StatusInternalServerError, "", "etcdserver: request is too large", 0},
		"unavailable": {fmt.Errorf("%w: disk full", engine.ErrUnavailable), http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "the store is unavailable: disk full", 1},
		"uncertain": {engine.Uncertain(fmt.Errorf("%w: disk full", engine.ErrUnavailable)), http.StatusGatewayTimeout, metav1.StatusReasonTimeout,
			"Timeout: whether the change was made is not known: the store is unavailable: disk full", 0},
		"no room": {engine.ErrNoRoom, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "the store is unavailable: it has no room", 0},
		"closed":  {engine.ErrClosed, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "the store is closed", 0},
		"other":   {errors.New("bits flipped"), http.StatusInternalServerError, "", "bits flipped", 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestStore(t, func(o *StoreOptions) { o.Engine = failingEngine{fail: c.fail} })
			ctx := t.Context()
			all := storage.ListOptions{Recursive: true, Predicate: storage.Everything}
			_, versionErr := s.GetCurrentResourceVersion(ctx)
			_, statsErr := s.Stats(ctx)
			for verb, err := range map[string]error{
				"create": s.Create(ctx, "/pods/ns/a", newPod("a"), nil, 0),
				"get":    s.Get(ctx, "/pods/ns/a", storage.GetOptions{}, &example.Pod{}),
				"list":   s.GetList(ctx, "/pods", all, &example.PodList{}),
				"update": s.GuaranteedUpdate(ctx, "/pods/ns/a", &example.Pod{}, false, nil, unchanged, nil),
				"delete": s.Delete(ctx, "/pods/ns/a", &example.Pod{}, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{}),

				"current version": versionErr,
				"progress":        s.RequestWatchProgress(ctx),
				"stats":           statsErr,
			} {
				status := responsewriters.ErrorToAPIStatus(err)
				if status.Code != c.code || status.Reason != c.reason || status.Message != c.message {
					t.Errorf("%s: %d %q %q", verb, status.Code, status.Reason, status.Message)
				}
				retry := int32(0)
				if status.Details != nil {
					retry = status.Details.RetryAfterSeconds
				}
				if retry != c.retry {
					t.Errorf("%s: to be repeated after %d s, want %d", verb, retry, c.retry)
				}
			}
		})
	}
}

// TestTooLargeIsKnownToHandlers checks the form of the error for large objects: the endpoint
// handlers retry without managedFields only if the error has this form (apiserver,
// endpoints/handlers/rest.go).
func TestTooLargeIsKnownToHandlers(t *testing.T) {
	s := newTestStore(t)
	pod := newPod("a")
	pod.Annotations = map[string]string{"a": strings.Repeat("x", 3<<20)}
	err := s.Create(t.Context(), "/pods/ns/a", pod, nil, 0)
	known, ok := err.(interface { // as the handlers do
		Code() codes.Code
		Error() string
	})
	if !ok || known.Code() != codes.InvalidArgument || known.Error() != "etcdserver: request is too large" {
		t.Errorf("%T: %v", err, err)
	}
}

func unchanged(obj runtime.Object, _ storage.ResponseMeta) (runtime.Object, *uint64, error) {
	return obj, nil, nil
}

// TestConcurrentUpdates checks that concurrent writers of one object make each change exactly once,
// on top of the changes of the others.
func TestConcurrentUpdates(t *testing.T) {
	s := newTestStore(t)
	ctx := t.Context()
	if err := s.Create(ctx, "/pods/ns/a", newPod("a"), nil, 0); err != nil {
		t.Fatal(err)
	}
	const writers, each = 4, 25
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range each {
				err := s.GuaranteedUpdate(ctx, "/pods/ns/a", &example.Pod{}, false, nil, func(obj runtime.Object, _ storage.ResponseMeta) (runtime.Object, *uint64, error) {
					obj.(*example.Pod).Generation++
					return obj, nil, nil
				}, nil)
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	var got example.Pod
	if err := s.Get(ctx, "/pods/ns/a", storage.GetOptions{}, &got); err != nil || got.Generation != writers*each {
		t.Errorf("generation %d, %v", got.Generation, err)
	}
}

// TestUpdateWithoutChange checks that an unchanged object is not written, and is returned with its
// current version.
func TestUpdateWithoutChange(t *testing.T) {
	s := newTestStore(t)
	ctx := t.Context()
	var created, updated example.Pod
	if err := s.Create(ctx, "/pods/ns/a", newPod("a"), &created, 0); err != nil {
		t.Fatal(err)
	}
	before := s.otherChange(ctx, t)
	for _, suggestion := range []runtime.Object{nil, created.DeepCopyObject()} {
		if err := s.GuaranteedUpdate(ctx, "/pods/ns/a", &updated, false, nil, unchanged, suggestion); err != nil {
			t.Fatal(err)
		}
		if updated.ResourceVersion != created.ResourceVersion {
			t.Errorf("version %s, want %s", updated.ResourceVersion, created.ResourceVersion)
		}
	}
	if now, err := s.GetCurrentResourceVersion(ctx); err != nil || now != before {
		t.Errorf("revision %d, was %d; %v", now, before, err)
	}
}

// TestSuggestionWithoutVersion checks that a suggestion without a version is ignored: it neither
// deletes nor creates an object.
func TestSuggestionWithoutVersion(t *testing.T) {
	s := newTestStore(t)
	ctx := t.Context()
	remove := func() error {
		return s.Delete(ctx, "/pods/ns/a", &example.Pod{}, nil, storage.ValidateAllObjectFunc, newPod("a"), storage.DeleteOptions{})
	}
	if err := remove(); !storage.IsNotFound(err) {
		t.Errorf("delete: %v", err)
	}
	if err := s.GuaranteedUpdate(ctx, "/pods/ns/a", &example.Pod{}, false, nil, unchanged, newPod("a")); !storage.IsNotFound(err) {
		t.Errorf("update: %v", err)
	}
	if err := s.Create(ctx, "/pods/ns/a", newPod("a"), nil, 0); err != nil {
		t.Fatal(err)
	}
	if err := remove(); err != nil {
		t.Errorf("delete: %v", err)
	}
}

// inconsistentContinue is the message of kube-apiserver for an expired token.
const inconsistentContinue = "The provided continue parameter is too old " +
	"to display a consistent list result. You can start a new list without " +
	"the continue parameter, or use the continue token in this response to " +
	"retrieve the remainder of the results. Continuing with the provided " +
	"token results in an inconsistent list - objects that were created, " +
	"modified, or deleted between the time the first chunk was returned " +
	"and now may show up in the list."

// TestListGoesOnAfterCompaction checks continue tokens of lists that end or expire: revision -1
// continues the list at the current revision, and the token of that response is an ordinary one.
func TestListGoesOnAfterCompaction(t *testing.T) {
	s := newTestStore(t)
	ctx := t.Context()
	for i := range 4 {
		name := fmt.Sprintf("pod-%d", i)
		if err := s.Create(ctx, "/pods/ns/"+name, newPod(name), nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	list := func(token string) (*example.PodList, error) {
		var l example.PodList
		opts := storage.ListOptions{Recursive: true, Predicate: storage.Everything}
		opts.Predicate.Limit, opts.Predicate.Continue = 1, token
		return &l, s.GetList(ctx, "/pods", opts, &l)
	}
	first, err := list("")
	if err != nil || len(first.Items) != 1 || *first.RemainingItemCount != 3 {
		t.Fatalf("%d items, %v", len(first.Items), err)
	}
	if err := s.engine.Compact(ctx, s.otherChange(ctx, t)); err != nil {
		t.Fatal(err)
	}
	_, err = list(first.Continue)
	var expired apierrors.APIStatus
	if !errors.As(err, &expired) || !apierrors.IsResourceExpired(err) || expired.Status().Message != inconsistentContinue {
		t.Fatalf("%v", err)
	}
	second, err := list(expired.Status().Continue)
	if err != nil || len(second.Items) != 1 || second.Items[0].Name != "pod-1" {
		t.Fatalf("%+v, %v", second.Items, err)
	}
	third, err := list(second.Continue)
	if err != nil || len(third.Items) != 1 || third.Items[0].Name != "pod-2" || third.ResourceVersion != second.ResourceVersion {
		t.Fatalf("%+v, %v", third.Items, err)
	}
}

// TestUnstructured checks that custom resources are unstructured: items of a list are converted to
// the version that is set on the list.
func TestUnstructured(t *testing.T) {
	s := newTestStore(t, func(o *StoreOptions) {
		o.Codec = unstructured.UnstructuredJSONScheme
		o.ResourcePrefix = "/example.com/widgets"
		o.NewFunc = func() runtime.Object { return newWidget("") }
	})
	ctx := t.Context()
	for _, name := range []string{"a", "b"} {
		out := &unstructured.Unstructured{}
		if err := s.Create(ctx, "/example.com/widgets/ns/"+name, newWidget(name), out, 0); err != nil {
			t.Fatal(err)
		}
		if out.GetResourceVersion() == "" || out.GetKind() != "Widget" {
			t.Errorf("created: %v", out)
		}
	}
	for _, apiVersion := range []string{"", "example.com/v1"} {
		list := &unstructured.UnstructuredList{Object: map[string]any{}}
		if apiVersion != "" {
			list.SetAPIVersion(apiVersion)
		}
		if err := s.GetList(ctx, "/example.com/widgets", storage.ListOptions{Recursive: true, Predicate: storage.Everything}, list); err != nil {
			t.Fatal(err)
		}
		if len(list.Items) != 2 || list.Items[1].GetName() != "b" || list.Items[1].GetResourceVersion() == "" || list.GetResourceVersion() == "" {
			t.Errorf("list: %v", list)
		}
	}
	out := newWidget("")
	change := func(obj runtime.Object, _ storage.ResponseMeta) (runtime.Object, *uint64, error) {
		obj.(*unstructured.Unstructured).SetLabels(map[string]string{"a": "b"})
		return obj, nil, nil
	}
	if err := s.GuaranteedUpdate(ctx, "/example.com/widgets/ns/a", out, false, nil, change, nil); err != nil || out.GetLabels()["a"] != "b" {
		t.Errorf("update: %v, %v", out, err)
	}
	if err := s.Delete(ctx, "/example.com/widgets/ns/a", out, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if err := s.Get(ctx, "/example.com/widgets/ns/a", storage.GetOptions{}, out); !storage.IsNotFound(err) {
		t.Errorf("get after delete: %v", err)
	}
}

func newWidget(name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetAPIVersion("example.com/v1")
	u.SetKind("Widget")
	if name != "" {
		u.SetName(name)
		u.SetNamespace("ns")
	}
	return u
}

// TestEncryptedValues checks that values encrypted by another server are not decoded as objects.
func TestEncryptedValues(t *testing.T) {
	s := newTestStore(t)
	ctx := t.Context()
	if _, err := s.engine.Put(ctx, "/registry/pods/ns/a", []byte("k8s:enc:aescbc:v1:key1:xxxx"), engine.Precondition{}, 0); err != nil {
		t.Fatal(err)
	}
	err := s.Get(ctx, "/pods/ns/a", storage.GetOptions{}, &example.Pod{})
	if !storage.IsInternalError(err) || err.Error() != "identity transformer tried to read encrypted data" {
		t.Errorf("%v", err)
	}
}

func TestRESTOptions(t *testing.T) {
	e := newTestStore(t).engine
	codec := testCodec(t)
	progress := new(Progress)
	decorator := Decorator(Options{Engine: e, Progress: progress, BookmarkPeriod: time.Second})
	getter := NewRESTOptionsGetter(decorator, func(gr schema.GroupResource, example runtime.Object) (*storagebackend.ConfigForResource, string, error) {
		if gr.Resource != "pods" {
			return nil, "", errors.New("not stored")
		}
		return storagebackend.NewDefaultConfig(DefaultPrefix, codec).ForResource(gr), "pods", nil
	}, nil)
	if _, err := getter.GetRESTOptions(schema.GroupResource{Resource: "nodes"}, nil); err == nil {
		t.Error("a resource without a codec is stored")
	}
	gr := schema.GroupResource{Group: "example.k8s.io", Resource: "pods"}
	opts, err := getter.GetRESTOptions(gr, &example.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	if !opts.EnableGarbageCollection || opts.DeleteCollectionWorkers != 1 || opts.ResourcePrefix != "pods" || opts.CountMetricPollPeriod != 0 {
		t.Errorf("%+v", opts)
	}
	var _ generic.RESTOptionsGetter = getter
	made, destroy, err := opts.Decorator(opts.StorageConfig, "/"+opts.ResourcePrefix, nil, func() runtime.Object { return &example.Pod{} }, nil, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer destroy()
	s := made.(*Store)
	if s.progress != progress || s.bookmarkPeriod != time.Second || s.resource != gr {
		t.Errorf("%+v", s)
	}
	if err := made.Create(t.Context(), "/pods/ns/a", newPod("a"), nil, 0); err != nil {
		t.Fatal(err)
	}
	if result, err := e.Range(t.Context(), engine.RangeOptions{Prefix: "/registry/pods/ns/a", Exact: true}); err != nil || len(result.KVs) != 1 {
		t.Errorf("%+v, %v", result, err)
	}
}
