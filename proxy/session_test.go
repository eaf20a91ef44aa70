package proxy

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/internal/api"
)

func newSessionBench(t *testing.T) *gatewayBench {
	t.Helper()
	return newGatewayBench(t, func(o *Options) { o.Consistency = Consistency{Default: ModeSession, MaxStaleness: time.Minute} })
}

// list reads the pods as a session does, and tells whether the cache answered.
func (b *gatewayBench) list() (string, bool) {
	b.t.Helper()
	before := b.upstream.count()
	_, body, _ := b.do("GET /api/v1/pods")
	if b.upstream.count() != before {
		return "", false
	}
	return names(b.t, body), true
}

// lateFeed holds the feed back for half as long as deletions are waited for.
func (b *gatewayBench) lateFeed() {
	b.source.Hold()
	go func() {
		time.Sleep(deletionWait / 2)
		b.source.Release()
	}()
}

func TestSessionSeesWritesMadeHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newSessionBench(t)
		b.source.Create(cachetest.Pods, cachetest.Pod("default/a", ""))
		if got, cached := b.list(); !cached || got != "a" {
			t.Fatalf("%q, cached %v", got, cached)
		}
		// A write that the feed brings late: the read waits for it.
		b.lateFeed()
		b.upstream.answer = func(*api.Request) *api.Response {
			o := b.source.Create(cachetest.Pods, cachetest.Pod("default/b", ""))
			return &api.Response{Status: 201, Length: -1, BodyTo: strings.NewReader(
				fmt.Sprintf(`{"kind":"Pod","metadata":{"name":"b","resourceVersion":%q}}`, o.GetResourceVersion()))}
		}
		if status, _, _ := b.do("POST /api/v1/namespaces/default/pods"); status != 201 {
			t.Fatal(status)
		}
		if got, cached := b.list(); !cached || got != "a b" {
			t.Errorf("after a create: %q, cached %v", got, cached)
		}
		// A deletion whose answer tells the uid alone.
		b.lateFeed()
		b.upstream.answer = func(*api.Request) *api.Response {
			o := b.source.Delete(cachetest.Pods, "default/a")
			return &api.Response{Status: 200, Body: fmt.Appendf(nil, `{"kind":"Status","details":{"name":"a","uid":%q}}`, o.GetUID())}
		}
		b.do("DELETE /api/v1/namespaces/default/pods/a")
		if got, cached := b.list(); !cached || got != "b" {
			t.Errorf("after a delete: %q, cached %v", got, cached)
		}
		// A feed that does not come: the upstream answers.
		b.source.Hold()
		b.upstream.answer = func(*api.Request) *api.Response {
			o := b.source.Create(cachetest.Pods, cachetest.Pod("default/c", ""))
			return &api.Response{Status: 201, Body: fmt.Appendf(nil, `{"kind":"Pod","metadata":{"name":"c","resourceVersion":%q}}`, o.GetResourceVersion())}
		}
		b.do("POST /api/v1/namespaces/default/pods")
		b.upstream.answer = nil
		if got, cached := b.list(); cached {
			t.Errorf("answered %q from a cache that lacks a write", got)
		}
		b.source.Release()
	})
}

// An update that takes away the last finalizer deletes, and is answered with the
// object and its version from before.
func TestSessionSeesDeletionsByUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newSessionBench(t)
		b.source.Create(cachetest.Pods, cachetest.Pod("default/a", ""))
		b.source.Create(cachetest.Pods, cachetest.Pod("default/b", ""))
		if got, cached := b.list(); !cached || got != "a b" {
			t.Fatalf("%q, cached %v", got, cached)
		}
		b.upstream.answer = func(*api.Request) *api.Response {
			before := b.source.Objects(cachetest.Pods)[0].GetResourceVersion()
			b.lateFeed()
			b.source.Delete(cachetest.Pods, "default/a")
			return &api.Response{Status: 200, Body: fmt.Appendf(nil,
				`{"kind":"Pod","metadata":{"name":"a","resourceVersion":%q,"deletionTimestamp":"2026-01-02T03:04:05Z","deletionGracePeriodSeconds":0}}`, before)}
		}
		b.do("PUT /api/v1/namespaces/default/pods/a")
		if got, cached := b.list(); !cached || got != "b" {
			t.Errorf("after the update: %q, cached %v", got, cached)
		}
	})
}

// A dry run of a deletion is answered as the deletion is.
func TestSessionAfterDryRunOfDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newSessionBench(t)
		o := b.source.Create(cachetest.Pods, cachetest.Pod("default/a", ""))
		b.list()
		b.upstream.answer = func(*api.Request) *api.Response {
			return &api.Response{Status: 200, Body: fmt.Appendf(nil, `{"kind":"Status","details":{"name":"a","uid":%q}}`, o.GetUID())}
		}
		b.do("DELETE /api/v1/namespaces/default/pods/a")
		if got, cached := b.list(); !cached || got != "a" {
			t.Errorf("after the dry run: %q, cached %v", got, cached)
		}
		start := time.Now()
		if got, cached := b.list(); !cached || got != "a" || time.Since(start) > 0 {
			t.Errorf("the read after that took %v: %q, cached %v", time.Since(start), got, cached)
		}
	})
}

func TestWriteIsRecordedBeforeItsAnswerGoesOut(t *testing.T) {
	s := newSession(time.Now)
	info := api.ParseRequestInfo("POST", "/api/v1/namespaces/default/pods", "")
	body := `{"kind":"Pod","metadata":{"resourceVersion":"42"}}`
	resp := s.observeWrite(&info, &api.Response{Status: 201, Length: -1, BodyTo: strings.NewReader(body)})
	gr := schema.GroupResource{Resource: "pods"}
	var got strings.Builder
	w := writerFunc(func(p []byte) (int, error) {
		if v := s.mu.resources[gr].version; v != 42 {
			t.Errorf("bytes go out at recorded version %d", v)
		}
		return got.Write(p)
	})
	if _, err := resp.BodyTo.WriteTo(w); err != nil || got.String() != body {
		t.Errorf("%q, %v", got.String(), err)
	}
	resp.Done(int64(len(body)), nil)
	if n := s.mu.resources[gr].unknown; n != 0 {
		t.Errorf("%d writes of unknown effect", n)
	}
	lost := s.observeWrite(&info, &api.Response{Status: 201, Length: -1, BodyTo: strings.NewReader(body)})
	lost.Done(0, io.ErrClosedPipe) // the client left before the answer was read
	if n := s.mu.resources[gr].unknown; n != 1 {
		t.Errorf("%d writes of unknown effect after a lost answer", n)
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
			a, err := readAnswer([]byte(body))
			if err != nil || a.Metadata.ResourceVersion != "7" || a.leaves() != c.want {
				t.Errorf("%s: %+v, %v", name, a, err)
			}
		}
	}
	status := &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Details: &metav1.StatusDetails{UID: "u"}}
	for _, body := range []string{encodeJSON(t, status), encodeProtobuf(t, status)} {
		a, err := readAnswer([]byte(body))
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
