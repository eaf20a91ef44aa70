package proxy

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/internal/api"
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
		time.Sleep(50 * time.Millisecond)
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
		b.upstream.response = func(*api.Request) *api.Response {
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
		b.upstream.response = func(*api.Request) *api.Response {
			o := b.source.Delete(cachetest.Pods, "default/a")
			return &api.Response{Status: 200, Body: fmt.Appendf(nil, `{"kind":"Status","details":{"name":"a","uid":%q}}`, o.GetUID())}
		}
		b.do("DELETE /api/v1/namespaces/default/pods/a")
		if got, cached := b.list(); !cached || got != "b" {
			t.Errorf("after a delete: %q, cached %v", got, cached)
		}
		// A feed that does not come: the upstream answers.
		b.source.Hold()
		b.upstream.response = func(*api.Request) *api.Response {
			o := b.source.Create(cachetest.Pods, cachetest.Pod("default/c", ""))
			return &api.Response{Status: 201, Body: fmt.Appendf(nil, `{"kind":"Pod","metadata":{"name":"c","resourceVersion":%q}}`, o.GetResourceVersion())}
		}
		b.do("POST /api/v1/namespaces/default/pods")
		b.upstream.response = nil
		if got, cached := b.list(); cached {
			t.Errorf("answered %q from a cache that lacks a write", got)
		}
		b.source.Release()
	})
}

// TestSessionReadsDoNotGoBack: once the upstream has served a read because the feed was late, the cache serves none
// that is older.
func TestSessionReadsDoNotGoBack(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newSessionBench(t)
		b.source.Create(cachetest.Pods, cachetest.Pod("default/a", ""))
		if got, cached := b.list(); !cached || got != "a" {
			t.Fatalf("%q, cached %v", got, cached)
		}
		b.source.Hold()
		b.upstream.response = func(*api.Request) *api.Response {
			o := b.source.Create(cachetest.Pods, cachetest.Pod("default/b", ""))
			return &api.Response{Status: 201, Body: fmt.Appendf(nil, `{"kind":"Pod","metadata":{"name":"b","resourceVersion":%q}}`, o.GetResourceVersion())}
		}
		b.do("POST /api/v1/namespaces/default/pods")
		b.upstream.response = nil
		b.source.Create(cachetest.Pods, cachetest.Pod("default/c", "")) // by another way
		if got, cached := b.list(); cached {
			t.Fatalf("%q from a cache that lacks a write", got)
		}
		b.source.HoldAfter(1)
		b.source.Release()
		synctest.Wait() // the cache has the write now, but not all that the client has seen
		if got, cached := b.list(); cached && got != "a b c" {
			t.Errorf("%q after the upstream's response", got)
		}
		b.source.Release()
		synctest.Wait()
		if got, cached := b.list(); !cached || got != "a b c" {
			t.Errorf("%q, cached %v, when the feed has caught up", got, cached)
		}
	})
}

// TestSessionSeesDeletionsByUpdate: an update that removes the last finalizer deletes the object.
// The response has the object and its version from before.
func TestSessionSeesDeletionsByUpdate(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newSessionBench(t)
		b.source.Create(cachetest.Pods, cachetest.Pod("default/a", ""))
		b.source.Create(cachetest.Pods, cachetest.Pod("default/b", ""))
		if got, cached := b.list(); !cached || got != "a b" {
			t.Fatalf("%q, cached %v", got, cached)
		}
		b.upstream.response = func(*api.Request) *api.Response {
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

// TestSessionAfterDryRunOfDeletion: the response to a dry run of a deletion is the same as to the
// deletion.
func TestSessionAfterDryRunOfDeletion(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newSessionBench(t)
		o := b.source.Create(cachetest.Pods, cachetest.Pod("default/a", ""))
		b.list()
		b.upstream.response = func(*api.Request) *api.Response {
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

// TestSessionForgetsVersionThatNeverComes: a version that is none of the upstream's, of an etcd
// that was restored since, delays one read.
func TestSessionForgetsVersionThatNeverComes(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newSessionBench(t)
		b.source.Create(cachetest.Pods, cachetest.Pod("default/a", ""))
		b.list()
		b.write("POST /api/v1/namespaces/default/pods", func() string { return `{"metadata":{"resourceVersion":"1000000"}}` })
		for i, limit := range []time.Duration{4 * time.Second, 0, 0} {
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

// TestSessionAfterRewind: an upstream that goes back begins anew, and so does the session.
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

// TestSessionKnowsDeletionFromAbsence: an object that is deleted here before the feed has delivered
// it is not reported as gone: it would appear, and go, later.
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
	b.upstream.response = func(*api.Request) *api.Response { return &api.Response{Status: 200, Body: []byte(do())} }
	b.do(line)
	b.upstream.response = nil
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

// TestSessionReadsCauseNoRequest: reads wait for the client's own writes, at no cost to the upstream.
func TestSessionReadsCauseNoRequest(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newSessionBench(t)
		b.list()
		b.do("GET /api/v1/pods", "Accept: application/vnd.kubernetes.protobuf")
		b.source.Calls()
		for i := range 64 + 10 {
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
				if requested := b.upstream.count() != before || len(b.source.Calls()) > 0; requested != strict {
					t.Errorf("%s with %q: upstream asked %v, want %v", path, header, requested, strict)
				}
			}
		}
	})
}

// TestSessionChecksFreshnessOnce: after a write of unknown effect the gateway queries the upstream at most
// once for each collection.
func TestSessionChecksFreshnessOnce(t *testing.T) {
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
		b.upstream.response = func(*api.Request) *api.Response { return &api.Response{Status: 503} }
		for range 64 + 1 {
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

// TestSessionRemembersServedResourcesOnly: a session remembers a bounded number of resources,
// whatever clients write to.
func TestSessionRemembersServedResourcesOnly(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newSessionBench(t)
		b.upstream.response = func(*api.Request) *api.Response { return &api.Response{Status: 503} }
		for i := range 1000 {
			b.do(fmt.Sprintf("POST /apis/g%d.example.com/v1/things", i))
			b.do(fmt.Sprintf("POST /api/v1/namespaces/n%d/pods", i))
			b.do(fmt.Sprintf("DELETE /api/v1/namespaces/n%d/pods%d", i, i))
		}
		if n := b.gateway.session.Resources(); n != 1 {
			t.Errorf("%d resources are remembered", n)
		}
	})
}
