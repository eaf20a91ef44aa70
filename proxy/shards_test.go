package proxy

import (
	"encoding/json"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
)

const wholeShard = "shardSelector=shardRange(object.metadata.uid,%20%270x0000000000000000%27,%20%270x10000000000000000%27)"

const shardList = `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5","shardInfo":{"selector":"shardRange(object.metadata.uid, '0x0000000000000000', '0x10000000000000000')"}},"items":[{"metadata":{"name":"from-upstream"}}]}`

// lists answers with a list in JSON.
func lists(body string) func(*api.Request) *api.Response {
	return func(*api.Request) *api.Response {
		return &api.Response{Status: 200, Header: api.Header{{Name: "Content-Type", Value: "application/json"}}, Body: []byte(body)}
	}
}

// otherLists are answers with more than the shard, or with what does not tell.
var otherLists = map[string]string{
	"all":         `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[]}`,
	"another":     strings.Replace(shardList, "0x0000000000000000", "0x8000000000000000", 1),
	"in an item":  `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[` + shardList + `]}`,
	"cut":         shardList[:len(shardList)-1],
	"no list":     `"shardInfo"`,
	"of rows":     `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"5"},"rows":[]}`,
	"of nothing":  "",
	"with a twin": shardList[:len(shardList)-1] + `,"metadata":{"resourceVersion":"5"}}`,
}

func missing(*api.Request) *api.Response {
	return &api.Response{Status: 404, Body: []byte("404 page not found"), Header: api.Header{{Name: "Content-Length", Value: "18"}}}
}

// TestShards: reads of shards are answered from the cache before any upstream, and what is not goes to one only that
// knows the parameter.
func TestShards(t *testing.T) {
	type upstreamResponse = func(*api.Request) *api.Response
	const pods = "GET /api/v1/pods?"
	expired := "&limit=1&continue=" + api.ContinueToken{ResourceVersion: 5, Start: "default/a\x00"}.Encode()
	for _, c := range []struct {
		name, line, header string
		response           upstreamResponse
		status             int
		message            string
		forwarded          int
	}{
		{name: "any version", line: pods + "resourceVersion=0&" + wholeShard, status: 200, message: `"shardInfo":{"selector":"shardRange(object.metadata.uid, '0x0000000000000000', '0x10000000000000000')"}`},
		{name: "most recent", line: pods + wholeShard, status: 200, message: `"name":"a"`},
		{name: "rest of an expired list", line: pods + wholeShard + "&continue=" + api.ContinueToken{ResourceVersion: -1, Start: "default/a"}.Encode(), status: 200, message: `"name":"a"`},
		{name: "watch", line: pods + "watch=1&" + wholeShard, status: 200},
		{name: "watch by path", line: "GET /api/v1/watch/pods?" + wholeShard, status: 200},
		{name: "an object has no shard", line: "GET /api/v1/namespaces/default/pods/a?resourceVersion=0&shardSelector=x", status: 200, message: `"name":"a"`},
		{name: "no selector", line: pods + "resourceVersion=0&shardSelector=x", status: 500, message: "invalid shard selector: "},
		{name: "no selector of a watch", line: pods + "watch=1&resourceVersion=0&shardSelector=x", status: 500, message: "invalid shard selector: "},
		{name: "without rights", line: pods + "resourceVersion=0&shardSelector=x", header: "Authorization: Bearer nobody", status: 403},
		{name: "empty is none", line: pods + "resourceVersion=0&shardSelector=", status: 200, message: `"name":"a"`},

		{name: "gone", line: pods + "resourceVersion=5&resourceVersionMatch=Exact&" + wholeShard, status: 410, message: "The resourceVersion for the provided list is too old.", forwarded: 1},
		{name: "gone, there upstream", line: pods + "resourceVersion=5&resourceVersionMatch=Exact&" + wholeShard, response: lists(shardList), status: 200, message: "from-upstream", forwarded: 1},
		{name: "expired token", line: pods + wholeShard + expired, status: 410, message: `"continue":"` + api.NewExpiredContinue(api.ContinueToken{Start: "default/a\x00"}).ErrStatus.Continue, forwarded: 1},
		{name: "future", line: pods + "resourceVersion=99999&" + wholeShard, status: 504, message: "Too large resource version: 99999, current: 101", forwarded: 1},
		{name: "future watch", line: pods + "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=99999&" + wholeShard, status: 504, message: "Too large", forwarded: 1},
		{name: "old watch", line: pods + "watch=1&resourceVersion=5&" + wholeShard, status: 410, message: "too old resource version: 5", forwarded: 1},
		{name: "old watch, of whatever", line: pods + "watch=1&resourceVersion=5&" + wholeShard, response: lists(shardList), status: 410, message: "too old resource version: 5", forwarded: 1},
		{name: "YAML", line: pods + "resourceVersion=0&" + wholeShard, header: "Accept: application/yaml", status: 200, message: "shardInfo:"},
		{name: "another form", line: pods + "resourceVersion=0&" + wholeShard, header: "Accept: text/html", status: 400, message: "representation", forwarded: 1},
		{name: "inexact", line: pods + "unknown=1&" + wholeShard, status: 400, message: "inexact", forwarded: 1},
		{name: "inexact, known", line: pods + "limit=x&" + wholeShard, response: lists(shardList), status: 200, message: "from-upstream", forwarded: 1},
		{name: "inexact and no selector", line: pods + "limit=x&shardSelector=x", response: lists(shardList), status: 400, message: "inexact", forwarded: 1},
		{name: "not there", line: "GET /api/v1/nothings?" + wholeShard, response: missing, status: 404, message: "404 page not found", forwarded: 1},
		{name: "deletion", line: "DELETE /api/v1/namespaces/default/pods?" + wholeShard, response: lists(shardList), status: 400, message: "would delete"},
		{name: "deletion of one", line: "DELETE /api/v1/namespaces/default/pods/a?" + wholeShard, status: 200, message: "upstream", forwarded: 1},
		{name: "HEAD", line: "HEAD /api/v1/pods?" + wholeShard, status: 200, forwarded: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				b := newGatewayBench(t, func(o *Options) { o.Policy.Limits.Resumed = 4 })
				b.source.Create(cachetest.Pods, cachetest.Pod("default/a", ""))
				b.source.NoTimeouts()
				b.upstream.response = c.response
				b.upstream.allowed = func(r *authorizationv1.SubjectAccessReviewSpec) bool { return r.User != "nobody" }
				status, body, _ := b.do(c.line, orElse(c.header, "X-Test: 1"))
				if status != c.status || !strings.Contains(body, c.message) {
					t.Errorf("%d %s", status, body)
				}
				if n := len(b.upstream.forwarded); n != c.forwarded {
					t.Errorf("%d requests upstream", n)
				}
			})
		})
	}
}

// TestOnlyShardsPass: of what the upstream answers to a list that the cache does not answer, only what says that it is the
// shard is passed on, in one piece or many, in JSON and protobuf.
func TestOnlyShardsPass(t *testing.T) {
	const gone = "GET /api/v1/pods?resourceVersion=5&resourceVersionMatch=Exact&" + wholeShard
	for name, body := range otherLists {
		t.Run(name, func(t *testing.T) {
			b := newGatewayBench(t, nil)
			b.upstream.response = lists(body)
			if status, body, _ := b.do(gone, "X-Test: 1"); status != 410 || !strings.Contains(body, "too old") {
				t.Errorf("%d %s", status, body)
			}
		})
	}
	var list corev1.PodList
	if err := json.Unmarshal([]byte(shardList), &list); err != nil {
		t.Fatal(err)
	}
	message, err := list.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	inProtobuf, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Raw: message}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	inProtobuf = append([]byte("k8s\x00"), inProtobuf...)
	long := strings.Replace(shardList, `"name"`, `"annotations":{"a":"`+strings.Repeat("x", 300<<10)+`"},"name"`, 1)
	for name, c := range map[string]struct {
		mediaType, body string
		status          int
	}{
		"protobuf":        {"application/vnd.kubernetes.protobuf", string(inProtobuf), 200},
		"protobuf, a bit": {"application/vnd.kubernetes.protobuf", string(inProtobuf[:len(inProtobuf)-1]), 410},
		"in pieces":       {"application/json; charset=utf-8", long, 200},
		"another type":    {"text/plain", shardList, 410},
		"no type":         {"", shardList, 410},
	} {
		t.Run(name, func(t *testing.T) {
			b := newGatewayBench(t, nil)
			done := 0
			b.upstream.response = func(r *api.Request) *api.Response {
				if r.Header.Has("Accept-Encoding") {
					t.Error("the answer may be compressed")
				}
				return &api.Response{Status: 200, Header: api.Header{{Name: "Content-Type", Value: c.mediaType}},
					BodyTo: strings.NewReader(c.body), Length: -1, Done: func(int64, error) { done++ }}
			}
			status, body, _ := b.do(gone, "Accept: application/vnd.kubernetes.protobuf, */*", "Accept-Encoding: gzip")
			if status != c.status || status == 200 && body != c.body || done != 1 {
				t.Errorf("%d %.300q, and the answer was done with %d times", status, body, done)
			}
		})
	}
}

// TestShardWatchesAreStopped: a watch that the upstream begins is ended and no event of it passed on.
func TestShardWatchesAreStopped(t *testing.T) {
	b := newGatewayBench(t, func(o *Options) { o.Policy.Limits.Resumed = 4 })
	b.source.NoTimeouts()
	stream := &stoppedStream{}
	b.upstream.response = func(*api.Request) *api.Response { return &api.Response{Status: 200, Stream: stream} }
	if status, body, _ := b.do("GET /api/v1/pods?watch=1&resourceVersion=5&"+wholeShard, "X-Test: 1"); status != 410 || stream.stopped != 1 {
		t.Errorf("%d %s, stopped %d times", status, body, stream.stopped)
	}
}

// stoppedStream is a Stream that must not begin.
type stoppedStream struct{ stopped int }

func (s *stoppedStream) Start(api.StreamWriter) { panic("the watch began") }
func (s *stoppedStream) Stop()                  { s.stopped++ }
