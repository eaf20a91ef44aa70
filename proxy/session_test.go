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

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/encoding/cbor"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/proxy/policy"
)

func newSessionBench(t *testing.T) *gatewayBench {
	t.Helper()
	return newGatewayBench(t, func(o *Options) {
		o.Policy.Consistency = policy.Consistency{Default: policy.ModeSession, MaxStaleness: time.Minute}
	})
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
	bubble.Test(t, func(t *testing.T) {
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
	bubble.Test(t, func(t *testing.T) {
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
	bubble.Test(t, func(t *testing.T) {
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

// everything is known to a session of these tests.
func everything(schema.GroupVersionResource) bool { return true }

// of returns what is remembered of a resource.
func (s *session) of(gr schema.GroupResource) writes {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.mu.resources[gr]; w != nil {
		return *w
	}
	return writes{}
}

func (s *session) observe(method, path string, resp *api.Response) *api.Response {
	info := api.ParseRequestInfo(method, path, "")
	return s.observeWrite(&info, resp)
}

func TestWriteIsRecordedBeforeItsAnswerGoesOut(t *testing.T) {
	s := newSession(everything, nil)
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

// What a proxy answers is not the storage's: it counts for nothing and is not held back.
func TestProxiedAnswersAreNoWrites(t *testing.T) {
	const path, high = "/api/v1/namespaces/d/pods/p/", `{"metadata":{"resourceVersion":"18446744073709551615"}}`
	for sub, want := range map[string]uint64{
		"proxy/x": 0, "proxy": 0, "exec": 0, "attach": 0, "portforward": 0, "log": 0, "token": 0, "unheardof": 1,
	} {
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
			s := newSession(everything, nil)
			body := strings.NewReader(high)
			if resp := s.observe(method, path+sub, &api.Response{Status: 200, Length: -1, BodyTo: body}); resp.BodyTo != body {
				t.Errorf("%s %s: the answer is held back", method, sub)
			}
			if w := s.of(schema.GroupResource{Resource: "pods"}); w.version != 0 || w.unknown != want || len(w.deleted) > 0 {
				t.Errorf("%s %s: %+v", method, sub, w)
			}
		}
	}
	s := newSession(everything, nil)
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
		s := newSession(everything, nil)
		method, path, _ := strings.Cut(c.line, " ")
		s.observe(method, path, &api.Response{Status: c.status, Body: []byte(c.body)})
		if w := s.of(schema.GroupResource{Resource: "pods"}); w.unknown != c.want {
			t.Errorf("%s answered %d: %d writes of unknown effect", c.line, c.status, w.unknown)
		}
	}
}

// A version that is none of the upstream's, of an etcd that was restored since, delays one read.
func TestSessionForgetsVersionThatNeverComes(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newSessionBench(t)
		b.source.Create(cachetest.Pods, cachetest.Pod("default/a", ""))
		b.list()
		b.write("POST /api/v1/namespaces/default/pods", func() string { return `{"metadata":{"resourceVersion":"1000000"}}` })
		for i, limit := range []time.Duration{sessionWait + proofWait, 0, 0} {
			start := time.Now()
			if got, cached := b.list(); !cached || got != "a" || time.Since(start) > limit {
				t.Errorf("read %d took %v: %q, cached %v", i, time.Since(start), got, cached)
			}
		}
		b.lateFeed()
		b.creates("b")
		if got, cached := b.list(); !cached || got != "a b" {
			t.Errorf("after a true write: %q, cached %v", got, cached)
		}
	})
}

// An upstream that goes back begins anew, and so does the session.
func TestSessionAfterRewind(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newSessionBench(t)
		b.source.Create(cachetest.Pods, cachetest.Pod("default/a", ""))
		b.list()
		backup := b.source.Backup()
		b.source.Bump(1000)
		b.creates("b")
		if got, cached := b.list(); !cached || got != "a b" {
			t.Fatalf("%q, cached %v", got, cached)
		}
		b.source.Rewind(backup)
		time.Sleep(time.Minute)
		b.list()
		start := time.Now()
		if got, cached := b.list(); !cached || got != "a" || time.Since(start) > 0 {
			t.Errorf("after the restore: %q, cached %v, %v", got, cached, time.Since(start))
		}
	})
}

// An object that is deleted here before the feed has brought it is not answered as gone: it would appear, and go, later.
func TestSessionKnowsDeletionFromAbsence(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newSessionBench(t)
		b.source.Create(cachetest.Pods, cachetest.Pod("default/a", ""))
		b.list()
		b.source.Hold()
		b.source.Create(cachetest.Pods, cachetest.Pod("default/b", "")) // by somebody else
		b.deletes("b")
		if got, cached := b.list(); cached {
			t.Errorf("%q is answered while the feed has yet to bring the object", got)
		}
		b.source.Release()
		synctest.Wait()
		for range 2 {
			start := time.Now()
			if got, cached := b.list(); !cached || got != "a" || time.Since(start) > 0 {
				t.Errorf("%q, cached %v, after %v", got, cached, time.Since(start))
			}
		}
	})
}

// write sends a write through the gateway; do makes it at the source and gives its answer.
func (b *gatewayBench) write(line string, do func() string) {
	b.upstream.answer = func(*api.Request) *api.Response { return &api.Response{Status: 200, Body: []byte(do())} }
	b.do(line)
	b.upstream.answer = nil
}

// creates creates a pod through the gateway, deletes deletes one, answered with its uid alone.
func (b *gatewayBench) creates(name string) {
	b.write("POST /api/v1/namespaces/default/pods", func() string {
		o := b.source.Create(cachetest.Pods, cachetest.Pod("default/"+name, ""))
		return fmt.Sprintf(`{"metadata":{"resourceVersion":%q}}`, o.GetResourceVersion())
	})
}

func (b *gatewayBench) deletes(name string) {
	b.write("DELETE /api/v1/namespaces/default/pods/"+name, func() string {
		o := b.source.Delete(cachetest.Pods, "default/"+name)
		return fmt.Sprintf(`{"kind":"Status","details":{"uid":%q}}`, o.GetUID())
	})
}

// One's own writes are waited for; they cost the upstream nothing.
func TestSessionReadsAskNobody(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newSessionBench(t)
		b.list()
		b.do("GET /api/v1/pods", "Accept: application/vnd.kubernetes.protobuf")
		b.source.Calls()
		for i := range maxDeletions + 10 {
			b.lateFeed()
			b.creates(fmt.Sprint(i))
			b.list()
			b.lateFeed()
			b.deletes(fmt.Sprint(i))
			for _, accept := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
				n := b.upstream.count()
				b.do("GET /api/v1/pods", "Accept: "+accept)
				if b.upstream.count() != n {
					t.Errorf("round %d, %s: not answered from the cache", i, accept)
				}
			}
		}
		if calls := b.source.Calls(); len(calls) > 0 {
			t.Errorf("the upstream was asked: %q", calls)
		}
		if w := b.gateway.session.of(schema.GroupResource{Resource: "pods"}); len(w.deleted) > 0 {
			t.Errorf("%d deletions are remembered after they were seen", len(w.deleted))
		}
	})
}

// TestNoCacheReadsAreStrict: a client asks the upstream in session mode by
// Cache-Control: no-cache, and by nothing that resembles it.
func TestNoCacheReadsAreStrict(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newSessionBench(t)
		b.list()
		for _, path := range []string{"/api/v1/pods", "/api/v1/namespaces/default/pods?limit=1", "/api/v1/namespaces/default/pods/a"} {
			for header, strict := range map[string]bool{
				"Cache-Control: no-cache": true, "cache-control: max-age=0, No-Cache": true,
				"Cache-Control: max-age=0": false, "Cache-Control: no-cachet": false, "Cache-Control: ": false, "Pragma: no-cache": false,
			} {
				b.source.Calls()
				before := b.upstream.count()
				b.do("GET "+path, header)
				if asked := b.upstream.count() != before || len(b.source.Calls()) > 0; asked != strict {
					t.Errorf("%s with %q: upstream asked %v, want %v", path, header, asked, strict)
				}
			}
		}
	})
}

// Of a write of unknown effect the upstream is asked once for each collection at most.
func TestSessionProvesOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newSessionBench(t)
		b.source.Create(cachetest.Pods, cachetest.Pod("default/a", ""))
		accepts := []string{"application/json", "application/vnd.kubernetes.protobuf"}
		read := func(accept string) {
			t.Helper()
			n := b.upstream.count()
			if b.do("GET /api/v1/pods", "Accept: "+accept); b.upstream.count() != n {
				t.Errorf("%s: not answered from the cache", accept)
			}
		}
		for _, accept := range accepts {
			read(accept)
		}
		b.upstream.answer = func(*api.Request) *api.Response { return &api.Response{Status: 503} }
		for range maxDeletions + 1 {
			b.do("DELETE /api/v1/namespaces/default/pods")
		}
		for _, accept := range accepts {
			read(accept)
		}
		b.source.Calls()
		for _, accept := range append(accepts, accepts...) {
			read(accept)
		}
		if calls := b.source.Calls(); len(calls) > 0 {
			t.Errorf("the upstream was asked again: %q", calls)
		}
	})
}

// What is remembered is bounded, whatever clients write to.
func TestSessionRemembersServedResourcesOnly(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newSessionBench(t)
		b.upstream.answer = func(*api.Request) *api.Response { return &api.Response{Status: 503} }
		for i := range 1000 {
			b.do(fmt.Sprintf("POST /apis/g%d.example.com/v1/things", i))
			b.do(fmt.Sprintf("POST /api/v1/namespaces/n%d/pods", i))
			b.do(fmt.Sprintf("DELETE /api/v1/namespaces/n%d/pods%d", i, i))
		}
		if s := b.gateway.session; len(s.mu.resources) != 1 {
			t.Errorf("%d resources are remembered", len(s.mu.resources))
		}
		s := newSession(everything, nil)
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
	})
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

// TestAnswerTellsVersionInCBOR: what a write did is read of an answer in CBOR as well.
func TestAnswerTellsVersionInCBOR(t *testing.T) {
	item, err := cbor.Append([]byte(cbor.SelfDescribed), []byte(`{"kind":"Secret","metadata":{"resourceVersion":"12"}}`), cbor.Untyped)
	if err != nil {
		t.Fatal(err)
	}
	if a, err := readAnswer(item); err != nil || a.Metadata.ResourceVersion != "12" || a.Kind != "Secret" {
		t.Errorf("%+v, %v", a, err)
	}
}
