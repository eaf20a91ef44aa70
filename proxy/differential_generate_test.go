package proxy

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
)

// sent is a request as it goes over the wire.
type sent struct {
	method, target string
	header         [][2]string // besides Host
}

// generator makes requests that are nearly right.
type generator struct{ *rand.Rand }

func newGenerator(seed, stream uint64) *generator {
	return &generator{rand.New(rand.NewPCG(seed, stream))}
}

func (g *generator) pick(of []string) string { return of[g.IntN(len(of))] }

// chance is true once in n times.
func (g *generator) chance(n int) bool { return g.IntN(n) == 0 }

var (
	goodPaths = []string{
		"/api/v1/pods", "/api/v1/namespaces/a/pods", "/api/v1/namespaces/a/pods/p", "/api/v1/nodes", "/api/v1/nodes/n",
		"/api/v1/namespaces", "/api/v1/namespaces/a", "/apis/apps/v1/deployments", "/apis/apps/v1/namespaces/a/deployments",
		"/apis/apps/v1/namespaces/a/deployments/system:d", "/apis/example.com/v1/namespaces", "/apis/example.com/v1/namespaces/a/namespaces/n",
		"/api/v1/namespaces/a/pods/p/status", "/api/v1/namespaces/a/pods/p/log", "/api/v1/namespaces/a/status", "/api/v1/watch/pods",
		"/api/v1/watch/namespaces/a/pods/p", "/api/v1/namespaces/a/namespaces", "/api/v1/pods/p", "/api/v1/namespaces/a/nodes",
	}
	someSegments = []string{
		"api", "apis", "v1", "apps", "example.com", "namespaces", "a", "pods", "nodes", "deployments", "p", "watch", "proxy", "status", "log", "finalize",
		"", ".", "..", "...", "%2e", "%2E%2e", "%2F", "a%2Fb", "%61", "po%64s", "namespace%73", "a%20b", "a;b", ";", "a%3Bb", "%00", "%C3%A4", "\xc3\xa4", "%ff",
		"%zz", "%", "a%25", "%252e", "\\", "%5c", "PODS", "a:b", "a@b", "a,b", "a+b", "a=b", "~", "*", "a&b", "a#b", "a?b", "a|b", "\"", "a'b", "kube-system", "-",
	}
	someNames = []string{
		"labelSelector", "fieldSelector", "watch", "allowWatchBookmarks", "resourceVersion", "resourceVersionMatch", "timeoutSeconds", "limit", "continue",
		"sendInitialEvents", "shardSelector", "timeout", "pretty", "includeObject", "export", "exact", "fieldManager", "dryRun", "Watch", "label%53elector", "w%61tch", "", "x", "watch ",
	}
	someValues = []string{
		"", "0", "1", "true", "false", "FALSE", "t", "yes", "-1", "500", "12345", "99999999999999999999", "abc", "Exact", "NotOlderThan", "Foo", "32s", "5", "1h1", "None", "Object",
		"a%3Db", "a=b", "a==b", "a!=b", "a%20in%20(b,c)", "a+in+%28b%2Cc%29", "a+notin+(b)", "!a", "a", "a,b", "a,,b", "%21%21", "a>1", "(", "a%00", "%ff", "%zz", "a;b", "a%26b", "a#b", "\xc3\xa4", "%C3%A4", "a%5C%2Cb",
		"metadata.name%3Dp", "metadata.name=p", "metadata.name%3D..", "metadata.name%3Da%252Fb", "metadata.name!=p", "metadata.name%3Dp,metadata.name%3Dq", "metadata.namespace%3Da", "spec.nodeName%3Dn", "spec.nodeName=n,status.phase!=Running",
		"eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiYVx1MDAwMCJ9",
	}
	likelyValues = map[string][]string{
		"labelSelector":        {"", "a%3Db", "a+in+%28b%2Cc%29", "a,!b", "a>1"},
		"fieldSelector":        {"", "metadata.name%3Dp", "spec.nodeName%3Dn", "metadata.namespace%3Da"},
		"watch":                {"", "1", "true", "0", "false"},
		"allowWatchBookmarks":  {"true", "false"},
		"resourceVersion":      {"", "0", "5"},
		"resourceVersionMatch": {"", "NotOlderThan", "Exact"},
		"timeoutSeconds":       {"5", "0", "-3"},
		"limit":                {"500", "0", "-1"},
		"continue":             {""},
		"sendInitialEvents":    {"true", "false"},
		"timeout":              {"", "32s", "0", "1h"},
		"pretty":               {"true", "", "0"},
		"includeObject":        {"None", "Object", "", "x"},
	}
	likelyNames = []string{"labelSelector", "fieldSelector", "watch", "allowWatchBookmarks", "resourceVersion", "resourceVersionMatch", "timeoutSeconds",
		"limit", "continue", "sendInitialEvents", "timeout", "pretty", "includeObject"}
	someMethods = []string{"HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "get", "Get", "GETT", "TRACE", "QUERY"}
	someLines   = [][2]string{
		{"Connection", "keep-alive"}, {"Connection", "upgrade"}, {"Connection", "Upgrade, Accept"}, {"Connection", "not-upgrade"}, {"Connection", "accept-encoding ,User-Agent"},
		{"Upgrade", "websocket"}, {"Upgrade", "SPDY/3.1"}, {"Upgrade", "h2c"}, {"Accept", "application/json"}, {"Accept", "application/vnd.kubernetes.protobuf, */*"}, {"Accept", ""},
		{"Accept-Encoding", "gzip"}, {"User-Agent", "kubectl/v1.36"}, {"user-agent", "curl/8"}, {"If-None-Match", "\"x\""}, {"TE", "trailers"}, {"X-Http-Method-Override", "DELETE"}, {"X-Original-Url", "/api/v1/secrets"},
		{"Keep-Alive", "timeout=5"}, {"Proxy-Connection", "close"}, {"Content-Length", "0"}, {"Pragma", "no-cache"},
	}
)

func (g *generator) request() sent {
	r := sent{method: "GET", target: g.path() + g.query()}
	if g.chance(20) {
		r.method = g.pick(someMethods)
	}
	switch {
	case g.chance(60):
		r.target = "https://other:1" + r.target
	case g.chance(200):
		r.target = g.pick([]string{"*", "/", "//x", "?watch=1", "x:y", "http://", "http://h?watch=1"})
	}
	for g.chance(3) {
		r.header = append(r.header, someLines[g.IntN(len(someLines))])
	}
	if g.chance(25) {
		b := []byte(r.target)
		b[g.IntN(len(b))] = byte(g.IntN(256))
		r.target = string(b)
	}
	return r
}

// path is a good one, in which little is changed.
func (g *generator) path() string {
	segments := strings.Split(g.pick(goodPaths), "/")[1:]
	for g.chance(3) {
		i := g.IntN(len(segments) + 1)
		switch {
		case g.chance(3):
			segments = append(segments[:i:i], append([]string{g.pick(someSegments)}, segments[i:]...)...)
		case i == len(segments):
		case g.chance(4) && len(segments) > 1:
			segments = append(segments[:i:i], segments[i+1:]...)
		case g.chance(2):
			segments[i] = g.pick(someSegments)
		default:
			segments[i] = g.escaped(segments[i])
		}
	}
	return "/" + strings.Join(segments, "/")
}

// escaped escapes one character that need not be.
func (g *generator) escaped(s string) string {
	if s == "" {
		return s
	}
	i := g.IntN(len(s))
	return fmt.Sprintf("%s%%%02x%s", s[:i], s[i], s[i+1:])
}

func (g *generator) query() string {
	if g.chance(5) {
		return ""
	}
	var parameters []string
	names := g.Perm(len(likelyNames))
	for _, i := range names[:g.IntN(4)] {
		name := likelyNames[i]
		parameters = append(parameters, name+"="+g.pick(likelyValues[name]))
	}
	for g.chance(4) {
		parameters = append(parameters, g.parameter(parameters))
	}
	g.Shuffle(len(parameters), func(i, j int) { parameters[i], parameters[j] = parameters[j], parameters[i] })
	return "?" + strings.Join(parameters, "&")
}

// parameter is one that makes a query odd.
func (g *generator) parameter(others []string) string {
	switch {
	case g.chance(6) && len(others) > 0:
		return others[g.IntN(len(others))]
	case g.chance(6):
		return g.pick(someNames)
	case g.chance(30):
		return strings.Repeat(g.pick([]string{"&", "&a", "a=b&"}), g.pickInt(60, 64, 200, 10_001))
	case g.chance(30):
		return g.pick([]string{"labelSelector=", "fieldSelector=a%3D"}) + strings.Repeat("a,", g.pickInt(98, 99, 100, 101)) + "a"
	case g.chance(4):
		return g.escaped(g.pick(likelyNames)) + "=" + g.pick(someValues)
	case g.chance(4):
		return g.pick(someNames) + "=" + url.QueryEscape(g.pick(someValues))
	}
	return g.pick(someNames) + "=" + g.pick(someValues)
}

func (g *generator) pickInt(of ...int) int { return of[g.IntN(len(of))] }
