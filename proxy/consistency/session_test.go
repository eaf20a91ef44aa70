package consistency

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/encoding/cbor"
)

// everything is known to a session of these tests.
func everything(schema.GroupVersionResource) bool { return true }

// of returns what is remembered of a resource.
func (s *Session) of(gr schema.GroupResource) writes {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.mu.resources[gr]; w != nil {
		return *w
	}
	return writes{}
}

func (s *Session) observe(method, path string, resp *api.Response) *api.Response {
	info := api.ParseRequestInfo(method, path, "")
	return s.ObserveWrite(&info, resp)
}

func TestWriteIsRecordedBeforeItsResponseGoesOut(t *testing.T) {
	s := NewSession(everything, nil)
	const path, body = "/api/v1/namespaces/default/pods", `{"kind":"Pod","metadata":{"resourceVersion":"42"}}`
	resp := s.observe("POST", path, &api.Response{Status: 201, Length: -1, BodyTo: strings.NewReader(body)})
	gr := schema.GroupResource{Resource: "pods"}
	var got strings.Builder
	w := writerFunc(func(p []byte) (int, error) {
		if v := s.of(gr).version; v != 42 {
			t.Errorf("bytes go out at recorded version %d", v)
		}
		return got.Write(p)
	})
	if _, err := resp.BodyTo.WriteTo(w); err != nil || got.String() != body {
		t.Errorf("%q, %v", got.String(), err)
	}
	resp.Done(int64(len(body)), nil)
	if n := s.of(gr).unknown; n != 0 {
		t.Errorf("%d writes of unknown effect", n)
	}
	lost := s.observe("POST", path, &api.Response{Status: 201, Length: -1, BodyTo: strings.NewReader(body)})
	lost.Done(0, io.ErrClosedPipe) // the client left before the answer was read
	if n := s.of(gr).unknown; n != 1 {
		t.Errorf("%d writes of unknown effect after a lost answer", n)
	}
}

// TestProxiedResponsesAreNoWrites: the response of a proxy is not the storage's, so it does not count
// as a write and is not held back.
func TestProxiedResponsesAreNoWrites(t *testing.T) {
	const path, high = "/api/v1/namespaces/d/pods/p/", `{"metadata":{"resourceVersion":"18446744073709551615"}}`
	for sub, want := range map[string]uint64{
		"proxy/x": 0, "proxy": 0, "exec": 0, "attach": 0, "portforward": 0, "log": 0, "token": 0, "unheardof": 1,
	} {
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
			s := NewSession(everything, nil)
			body := strings.NewReader(high)
			if resp := s.observe(method, path+sub, &api.Response{Status: 200, Length: -1, BodyTo: body}); resp.BodyTo != body {
				t.Errorf("%s %s: the answer is held back", method, sub)
			}
			if w := s.of(schema.GroupResource{Resource: "pods"}); w.version != 0 || w.unknown != want || len(w.deleted) > 0 {
				t.Errorf("%s %s: %+v", method, sub, w)
			}
		}
	}
	s := NewSession(everything, nil)
	s.observe("POST", path+"exec", &api.Response{Status: 101})
	if w := s.of(schema.GroupResource{Resource: "pods"}); w.unknown != 0 {
		t.Error("an exec counts as a write")
	}
}

func TestWritesOfUnknownEffect(t *testing.T) {
	const pods = "/api/v1/namespaces/d/pods"
	status := `{"kind":"Status","status":"Success"}`
	for _, c := range []struct {
		line   string
		status int
		body   string
		want   uint64
	}{
		{"POST " + pods, 201, `{"metadata":{"resourceVersion":"7"}}`, 0},
		{"POST " + pods, 422, status, 0},
		{"POST " + pods, 409, status, 0},
		{"POST " + pods, 499, status, 1},
		{"PUT " + pods + "/p", 499, status, 1},
		{"POST " + pods, 503, status, 1},
		{"POST " + pods, 201, `not JSON`, 1},
		{"DELETE " + pods, 200, `{"kind":"PodList","metadata":{"resourceVersion":"7"}}`, 1},
		{"DELETE " + pods, 403, status, 1},
		{"DELETE " + pods, 422, status, 1},
		{"DELETE " + pods + "/p", 403, status, 0},
		{"DELETE " + pods + "/p", 404, status, 0},
		{"DELETE " + pods + "/p", 409, status, 1},
		{"POST " + pods + "/p/eviction", 201, status, 1},
		{"POST " + pods + "/p/eviction", 409, status, 1},
		{"POST " + pods + "/p/eviction", 429, status, 0},
		{"POST " + pods + "/p/binding", 201, status, 1},
		{"POST /api/v1/namespaces/d/bindings", 201, status, 1},
	} {
		s := NewSession(everything, nil)
		method, path, _ := strings.Cut(c.line, " ")
		s.observe(method, path, &api.Response{Status: c.status, Body: []byte(c.body)})
		if w := s.of(schema.GroupResource{Resource: "pods"}); w.unknown != c.want {
			t.Errorf("%s answered %d: %d writes of unknown effect", c.line, c.status, w.unknown)
		}
	}
}

func TestObjectKey(t *testing.T) {
	for path, want := range map[string]string{
		"/api/v1/namespaces/a/pods/p": "a/p", "/api/v1/nodes/n": "n", "/api/v1/namespaces/a": "a",
	} {
		if info := api.ParseRequestInfo("DELETE", path, ""); objectKey(&info) != want {
			t.Errorf("%s: %s", path, objectKey(&info))
		}
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestLeaves(t *testing.T) {
	now, zero, thirty := metav1.Now(), int64(0), int64(30)
	for name, c := range map[string]struct {
		meta metav1.ObjectMeta
		want bool
	}{
		"alive":            {metav1.ObjectMeta{}, false},
		"deleted":          {metav1.ObjectMeta{DeletionTimestamp: &now}, true},
		"without grace":    {metav1.ObjectMeta{DeletionTimestamp: &now, DeletionGracePeriodSeconds: &zero}, true},
		"with grace":       {metav1.ObjectMeta{DeletionTimestamp: &now, DeletionGracePeriodSeconds: &thirty}, false},
		"with a finalizer": {metav1.ObjectMeta{DeletionTimestamp: &now, Finalizers: []string{"a/b"}}, false},
	} {
		c.meta.ResourceVersion = "7"
		pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: c.meta}
		for _, body := range []string{encodeJSON(t, pod), encodeProtobuf(t, pod)} {
			a, err := readResponse([]byte(body))
			if err != nil || a.Metadata.ResourceVersion != "7" || a.leaves() != c.want {
				t.Errorf("%s: %+v, %v", name, a, err)
			}
		}
	}
	status := &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Details: &metav1.StatusDetails{UID: "u"}}
	for _, body := range []string{encodeJSON(t, status), encodeProtobuf(t, status)} {
		a, err := readResponse([]byte(body))
		if err != nil || a.Kind != "Status" || a.Details == nil || a.Details.UID != "u" {
			t.Errorf("a Status: %+v, %v", a, err)
		}
	}
}

func encodeJSON(t *testing.T, o runtime.Object) string {
	t.Helper()
	out, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func encodeProtobuf(t *testing.T, o runtime.Object) string {
	t.Helper()
	var out strings.Builder
	if err := protobuf.NewSerializer(nil, nil).Encode(o, &out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestResponseHasVersionInCBOR: what a write did is read of an answer in CBOR as well.
func TestResponseHasVersionInCBOR(t *testing.T) {
	item, err := cbor.Append([]byte(cbor.SelfDescribed), []byte(`{"kind":"Secret","metadata":{"resourceVersion":"12"}}`), cbor.Untyped)
	if err != nil {
		t.Fatal(err)
	}
	if a, err := readResponse(item); err != nil || a.Metadata.ResourceVersion != "12" || a.Kind != "Secret" {
		t.Errorf("%+v, %v", a, err)
	}
}

// TestSessionIsBounded: a session remembers a bounded number of writes, whatever clients write to.
func TestSessionIsBounded(t *testing.T) {
	s := NewSession(everything, nil)
	for i := range maxWritten + 1 {
		s.observe("POST", fmt.Sprintf("/api/v1/namespaces/d/r%d", i), &api.Response{Status: 503})
	}
	_, first := s.pending(schema.GroupResource{Resource: "r0"})
	_, last := s.pending(schema.GroupResource{Resource: fmt.Sprintf("r%d", maxWritten)})
	if len(s.mu.resources) != maxWritten || !first || last {
		t.Errorf("%d resources, the first known %v, the last %v", len(s.mu.resources), first, last)
	}
	for i := range 10 * maxDeletions {
		s.observe("DELETE", fmt.Sprintf("/api/v1/namespaces/d/r0/%d", i), &api.Response{
			Status: 200, Body: fmt.Appendf(nil, `{"kind":"Status","details":{"uid":"%d"}}`, i)})
	}
	if w := s.of(schema.GroupResource{Resource: "r0"}); len(w.deleted) > maxDeletions || w.unknown < 2 {
		t.Errorf("%d deletions, %d of unknown effect", len(w.deleted), w.unknown)
	}
}

// TestHoldForgetsDeletions: a deletion that the collection has seen is not remembered any longer.
func TestHoldForgetsDeletions(t *testing.T) {
	cachetest.WithManager(t, cache.Limits{}, func(t *testing.T, source *cachetest.Source, m *cache.Manager) {
		source.Create(cachetest.Pods, cachetest.Pod("default/a", ""))
		c := cachetest.PodCollection(t, m)
		uid := c.Snapshot().Get("default/a").UID
		s := NewSession(everything, nil)
		s.observe("DELETE", "/api/v1/namespaces/default/pods/a", &api.Response{Status: 200, Body: []byte(`{"kind":"Status","details":{"uid":"` + uid + `"}}`)})
		if n := len(s.of(cachetest.Pods.GroupResource()).deleted); n != 1 {
			t.Fatalf("%d deletions are remembered", n)
		}
		source.Delete(cachetest.Pods, "default/a")
		unproven := func(context.Context) (uint64, error) { return 0, errors.New("nobody is asked") }
		if err := s.Hold(t.Context(), c, unproven); err != nil {
			t.Fatal(err)
		}
		if n := len(s.of(cachetest.Pods.GroupResource()).deleted); n != 0 {
			t.Errorf("%d deletions are remembered after a read", n)
		}
	})
}
