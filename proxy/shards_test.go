package proxy

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache/cachetest"
)

const wholeShard = "shardSelector=shardRange(object.metadata.uid,%20%270x0000000000000000%27,%20%270x10000000000000000%27)"

// knowsShards answers as a kube-apiserver that knows shardSelector.
func knowsShards(r *api.Request) *api.Response {
	query, _ := url.ParseQuery(r.RawQuery)
	if query.Get("shardSelector") == "none" {
		return &api.Response{Status: 500, Body: []byte(`{"message":"invalid shard selector: unexpected expression kind"}`)}
	}
	return &api.Response{Status: 200, Body: []byte("upstream")}
}

// repeats refuses as a kube-apiserver that knows no shards, in the words of the client.
func repeats(r *api.Request) *api.Response {
	return &api.Response{Status: 403, Body: fmt.Appendf(nil, "pods is forbidden: in %s", r.Path)}
}

func missing(*api.Request) *api.Response {
	return &api.Response{Status: 404, Body: []byte("404 page not found"), Header: api.Header{{Name: "Content-Length", Value: "18"}}}
}

// TestShards: reads of shards are answered from the cache before any upstream, and what is not goes to one only that
// knows the parameter.
func TestShards(t *testing.T) {
	type upstreamAnswer = func(*api.Request) *api.Response
	const pods = "GET /api/v1/pods?"
	expired := "&limit=1&continue=" + api.ContinueToken{ResourceVersion: 5, Start: "default/a\x00"}.Encode()
	for _, c := range []struct {
		name, line, header string
		answer             upstreamAnswer
		status             int
		says               string
		asked, forwarded   int // of the requests upstream: questions, and others
	}{
		{name: "any version", line: pods + "resourceVersion=0&" + wholeShard, status: 200, says: `"shardInfo":{"selector":"shardRange(object.metadata.uid, '0x0000000000000000', '0x10000000000000000')"}`},
		{name: "most recent", line: pods + wholeShard, status: 200, says: `"name":"a"`},
		{name: "rest of an expired list", line: pods + wholeShard + "&continue=" + api.ContinueToken{ResourceVersion: -1, Start: "default/a"}.Encode(), status: 200, says: `"name":"a"`},
		{name: "watch", line: pods + "watch=1&" + wholeShard, status: 200},
		{name: "watch by path", line: "GET /api/v1/watch/pods?" + wholeShard, status: 200},
		{name: "an object has no shard", line: "GET /api/v1/namespaces/default/pods/a?resourceVersion=0&shardSelector=x", status: 200, says: `"name":"a"`},
		{name: "no selector", line: pods + "resourceVersion=0&shardSelector=x", status: 500, says: "invalid shard selector: "},
		{name: "no selector of a watch", line: pods + "watch=1&resourceVersion=0&shardSelector=x", status: 500, says: "invalid shard selector: "},
		{name: "without rights", line: pods + "resourceVersion=0&shardSelector=x", header: "Authorization: Bearer nobody", status: 403},
		{name: "empty is none", line: pods + "resourceVersion=0&shardSelector=", status: 200, says: `"name":"a"`},

		{name: "gone", line: pods + "resourceVersion=5&resourceVersionMatch=Exact&" + wholeShard, status: 410, says: "The resourceVersion for the provided list is too old.", asked: 1},
		{name: "gone, known", line: pods + "resourceVersion=5&resourceVersionMatch=Exact&" + wholeShard, answer: knowsShards, status: 200, says: "upstream", asked: 1, forwarded: 1},
		{name: "expired token", line: pods + wholeShard + expired, status: 410, says: `"continue":"` + api.NewExpiredContinue("default/a\x00").ErrStatus.Continue, asked: 1},
		{name: "future", line: pods + "resourceVersion=99999&" + wholeShard, status: 504, says: "Too large resource version: 99999, current: 101", asked: 1},
		{name: "future watch", line: pods + "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=99999&" + wholeShard, status: 504, says: "Too large", asked: 1},
		{name: "old watch", line: pods + "watch=1&resourceVersion=5&" + wholeShard, status: 410, says: "too old resource version: 5", asked: 1},
		{name: "old watch, known", line: pods + "watch=1&resourceVersion=5&" + wholeShard, answer: knowsShards, status: 200, says: "upstream", asked: 1, forwarded: 1},
		{name: "YAML", line: pods + "resourceVersion=0&" + wholeShard, header: "Accept: application/yaml", status: 200, says: "shardInfo:"},
		{name: "another form", line: pods + "resourceVersion=0&" + wholeShard, header: "Accept: text/html", status: 400, says: "representation", asked: 1},
		{name: "inexact", line: pods + "unknown=1&" + wholeShard, status: 400, says: "inexact", asked: 1},
		{name: "inexact, known", line: pods + "limit=x&" + wholeShard, answer: knowsShards, status: 200, says: "upstream", asked: 1, forwarded: 1},
		{name: "not there", line: "GET /api/v1/nothings?" + wholeShard, answer: missing, status: 404, says: "404 page not found", asked: 1},
		{name: "deletion", line: "DELETE /api/v1/namespaces/default/pods?" + wholeShard, status: 400, says: "would delete", asked: 1},
		{name: "deletion, known", line: "DELETE /api/v1/namespaces/default/pods?" + wholeShard, answer: knowsShards, status: 200, says: "upstream", asked: 1, forwarded: 1},
		{name: "deletion, in words of a server that knows", line: "DELETE /api/v1/namespaces/invalid%20shard%20selector:%20/pods?" + wholeShard, answer: repeats, status: 403, says: "forbidden", asked: 1},
		{name: "deletion of one", line: "DELETE /api/v1/namespaces/default/pods/a?" + wholeShard, status: 200, says: "upstream", forwarded: 1},
		{name: "HEAD", line: "HEAD /api/v1/pods?" + wholeShard, status: 200, forwarded: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newGatewayBench(t, func(o *Options) { o.Limits.Resumed = 4 })
				b.source.Create(cachetest.Pods, cachetest.Pod("default/a", ""))
				b.upstream.answer = c.answer
				b.upstream.allowed = func(r *authorizationv1.SubjectAccessReviewSpec) bool { return r.User != "nobody" }
				status, body, _ := b.do(c.line, orElse(c.header, "X-Test: 1"))
				if status != c.status || !strings.Contains(body, c.says) {
					t.Errorf("%d %s", status, body)
				}
				asked, forwarded := 0, 0
				for _, f := range b.upstream.forwarded {
					if strings.HasPrefix(f.request.RawQuery, "shardSelector=none&limit=1") && f.request.Method == "GET" {
						asked++
					} else {
						forwarded++
					}
				}
				if asked != c.asked || forwarded != c.forwarded {
					t.Errorf("%d questions and %d others", asked, forwarded)
				}
			})
		})
	}
}

// TestShardQuestionIsTheClients: whoever asks, and as whom, the question is theirs, without what upgrades a connection.
func TestShardQuestionIsTheClients(t *testing.T) {
	b := newGatewayBench(t, nil)
	b.upstream.answer = knowsShards
	b.do("GET /api/v1/pods?watch=1&unknown=1&"+wholeShard, "Authorization: Bearer jane", "Accept: application/yaml", "Upgrade: websocket", "Connection: Upgrade")
	if len(b.upstream.forwarded) != 2 {
		t.Fatalf("%d requests", len(b.upstream.forwarded))
	}
	question, read := b.upstream.forwarded[0], b.upstream.forwarded[1]
	if question.as != read.as || question.request.Header.Get("Authorization") != read.request.Header.Get("Authorization") || question.request.Header.Get("Accept") != "application/yaml" ||
		question.request.Header.Has("Upgrade") || question.request.Upgrade != "" || !strings.HasSuffix(question.request.RawQuery, "&watch=1&timeoutSeconds=1") {
		t.Errorf("%+v", question)
	}
	if read.request.Upgrade != "websocket" || !strings.Contains(read.request.RawQuery, "unknown=1") {
		t.Errorf("%+v", read.request)
	}
}
