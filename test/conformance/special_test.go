package conformance

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// TestWithoutWatchList runs a gateway in front of a kube-apiserver without streaming lists.
func TestWithoutWatchList(t *testing.T) {
	t.Parallel()
	o := startOracle(t, realkube.Options{FeatureGates: map[string]bool{"WatchList": false}})
	do(t, o.Seed)
	do(t, o.Change)
	g := startGateway(t, o)
	ctx, oracle, gateway := t.Context(), target(t, o.Target, false), gatewayTarget(t, o, g, false)
	do(t, func(ctx context.Context) error { return Warm(ctx, o.Env, gateway, must(t, o.Resources)) })

	t.Run("old/15 without WatchList", func(t *testing.T) {
		c := watch("", podsPath+"?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
			append(repeat(added, podsPerApp), bookmark)...)
		requested, err := requestEach(ctx, c, o.Env.Users[admin], oracle, gateway)
		if err != nil {
			t.Fatal(err)
		}
		rejection := c.status(422).contains("sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled")
		rejection.Count = 1
		if s := surprises(rejection, requested[0]); len(s) > 0 {
			t.Fatalf("kube-apiserver does not reject the streaming list:\n%s", lines(s))
		}
		// Clients fall back if the request is rejected. A gateway may support streaming lists without its
		// upstream, but then completely.
		if requested[1].pages[0].Status == 200 {
			if s := surprises(c, requested[1]); len(s) > 0 {
				t.Errorf("the gateway neither rejects the streaming list nor sends all initial events and their end:\n%s", lines(s))
			}
		} else if d := differences(c, requested[0], requested[1]); len(d) > 0 {
			t.Error(lines(d))
		}
	})
	reads := slices.Concat(getCases(o.Env), selectorCases(o.Env), []Case{
		get("old/list", allPods), fresh("old/list any", allPods+"?resourceVersion=0"), get("old/17 pages", allPods+"?limit=20").walk(),
		watch("old/no version starts with what is there", widgetsPath+"?watch=1", added, added),
		watch("old/any version, pods", podsPath+"?watch=1&resourceVersion=0", repeat(added, podsPerApp)...),
	})
	RunReads(ctx, t, o.Env, oracle, gateway, reads)
	RunLive(ctx, t, o.Env, oracle, gateway, "live", slices.DeleteFunc(LiveCases(), func(c Live) bool {
		return strings.Contains(c.Case.Path, "sendInitialEvents")
	}))
}

// TestUpstreamLost kills and restarts kube-apiserver while watches of the gateway are open. Each
// watch continues or ends. A client that resumes its watch, and lists again after a 410, must see
// every change once and in order, and no bookmark may have a version whose events the client has
// not received.
func TestUpstreamLost(t *testing.T) {
	t.Parallel()
	o := startOracle(t, realkube.Options{})
	g := startGateway(t, o)
	oracle, gateway := target(t, o.Target, false), gatewayTarget(t, o, g, true)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	v := vars{"ns": "lost"}
	change := func(i int) Step {
		return post(configMaps, named(configMap, fmt.Sprintf("change-%02d", i))).as(fmt.Sprintf("change-%02d", i))
	}
	if err := write(ctx, o.Env, oracle, v, []Step{change(0)}); err != nil {
		t.Fatal(err)
	}
	const changes = 12
	for _, form := range []string{typeJSON, typeProto} {
		if err := warmOne(ctx, o.Env, gateway, anyList(Resource{Path: v.fill(configMaps)}, form)); err != nil {
			t.Fatal(err)
		}
	}
	followed := make(map[string]chan error)
	for name, mediaType := range map[string]string{"JSON": typeJSON, "protobuf": typeProto, "metadata": typeMeta} {
		followed[name] = make(chan error, 1)
		go func() {
			f := follower{server: gateway, as: o.Env.Users[admin], path: v.fill(configMaps), accept: mediaType}
			followed[name] <- f.follow(ctx, v["rv:change-00"], changes-1)
		}()
	}
	n := 1
	for _, outage := range []func() error{
		o.Cluster.KillAPIServer, func() error { return o.Cluster.StopAPIServer(ctx) }, o.Cluster.KillAPIServer,
	} {
		steps := []Step{change(n), change(n + 1)}
		if err := write(ctx, o.Env, oracle, v, steps); err != nil {
			t.Fatal(err)
		}
		if err := outage(); err != nil {
			t.Fatal(err)
		}
		if err := o.Cluster.StartAPIServer(ctx); err != nil {
			t.Fatal(err)
		}
		n += len(steps)
	}
	for ; n < changes; n++ {
		if err := write(ctx, o.Env, oracle, v, []Step{change(n)}); err != nil {
			t.Fatal(err)
		}
	}
	for name, err := range followed {
		t.Run("fault/74 the upstream is lost, "+name, func(t *testing.T) {
			if err := <-err; err != nil {
				t.Error(err)
			}
		})
	}
}

// A follower is a client that must not miss events.
type follower struct {
	server       *Target
	as           Credentials
	path, accept string

	version uint64 // of the last event, bookmark or list
	seen    []string
	lists   int // after a watch failed because its version was too old
}

// follow reads until it has seen the given number of new objects, in the order of their names.
func (f *follower) follow(ctx context.Context, since string, objects int) error {
	var err error
	if f.version, err = strconv.ParseUint(since, 10, 64); err != nil {
		return err
	}
	for len(f.seen) < objects {
		c := watch("", fmt.Sprintf("%s?watch=1&allowWatchBookmarks=true&resourceVersion=%d", f.path, f.version)).accept(f.accept)
		c.Count, c.Timeout = objects-len(f.seen), time.Minute
		a, _ := exchange(ctx, f.server, c, f.as) // a broken watch is resumed
		for _, frame := range a.frames {
			if err := f.take(ctx, frame); err != nil {
				return fmt.Errorf("after %v: %w", f.seen, err)
			}
		}
		requested := 0
		if err := poll(ctx, func() (bool, error) { // pause after a watch without events
			requested++
			return len(a.frames) > 0 || requested > 1, ctx.Err()
		}); err != nil {
			return fmt.Errorf("after %v: %w", f.seen, err)
		}
	}
	return nil
}

func (f *follower) take(ctx context.Context, frame Frame) error {
	if frame.Type == failed {
		if !bytes.Contains(frame.Bytes, []byte("too old resource version")) {
			return fmt.Errorf("%q", frame.Bytes)
		}
		return f.list(ctx)
	}
	version, err := frame.version()
	if err != nil || frame.Type != added && frame.Type != bookmark {
		return fmt.Errorf("%s %q (%w)", frame.Type, frame.Bytes, err)
	}
	if version < f.version || frame.Type == added && version == f.version {
		return fmt.Errorf("after version %d the watch received a %s at version %d", f.version, frame.Type, version)
	}
	f.version = version
	if frame.Type == bookmark {
		return nil
	}
	want := fmt.Sprintf("change-%02d", len(f.seen)+1)
	if !bytes.Contains(frame.Bytes, []byte(want)) {
		return fmt.Errorf("received %q, want %s", frame.Bytes, want)
	}
	f.seen = append(f.seen, want)
	return nil
}

// list lists again: it marks everything up to the list's version as seen. No object may be missing.
func (f *follower) list(ctx context.Context) error {
	f.lists++
	r, err := f.server.Send(ctx, Request{Path: f.path + "?resourceVersion=0"}, f.as)
	if err != nil {
		return err
	}
	version, err := strconv.ParseUint(listVersion(r.Body), 10, 64)
	if err != nil || version < f.version {
		return fmt.Errorf("list at version %q after version %d: %.300s", listVersion(r.Body), f.version, r.Body)
	}
	f.version = version
	listed := bytes.Count(r.Body, []byte(`"name":"change-`)) - 1 // without change-00, which existed before
	if listed < len(f.seen) {
		return fmt.Errorf("list at version %d has only %d changes", version, listed)
	}
	for len(f.seen) < listed {
		f.seen = append(f.seen, fmt.Sprintf("change-%02d", len(f.seen)+1))
	}
	return nil
}

// testHandshakeBody opens a WebSocket with a request body. kube-apiserver treats the body and its
// framing as frames of the client. The gateway rejects the request, because a request must be
// complete before its connection is upgraded (RFC 9110, 7.8).
func testHandshakeBody(ctx context.Context, t *testing.T, o *Oracle, oracle, gateway *Target) {
	bodies := map[string]struct{ body, frames string }{
		"Content-Length: 5":          {"hello", "\x88\x02\x03\xea"}, // "he" is the head of a frame without a mask
		"Content-Length: 14":         {clientFrame(9, "hi") + clientFrame(8, ""), "\x8a\x02hi\x88\x02\x03\xe8"},
		"Transfer-Encoding: chunked": {"5\r\nhello\r\n0\r\n\r\n", "\x88\x02\x03\xea"},
	}
	for line, b := range bodies {
		c := shake(o.Env, "body", line)
		c.Body, c.Sends = b.body, ""
		// The seeded version may be older than kube-apiserver's watch cache by now.
		c.Path = strings.Replace(c.Path, fmt.Sprintf("resourceVersion=%d", o.Env.Versions.Seeded), "resourceVersion=0", 1)
		requested, err := requestEach(ctx, c, o.Env.Users[admin], oracle, gateway)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if a := requested[0].pages[0]; a.Status != 101 || !bytes.HasSuffix(a.Body, []byte("\r\n\r\n"+b.frames)) {
			t.Errorf("%s: kube-apiserver responds %d %q", line, a.Status, a.Body)
		}
		if a := requested[1].pages[0]; a.Status != 400 || !bytes.Contains(a.Body, []byte("before the request's body has been sent")) {
			t.Errorf("%s: the gateway responds %d %q", line, a.Status, a.Body)
		}
	}
}

// testFrontProxy tests requests of an authenticating proxy that names users to the gateway.
func testFrontProxy(ctx context.Context, t *testing.T, o *Oracle, oracle, gateway *Target) {
	for name, commonName := range map[string]string{"proxy": o.Cluster.FrontProxyName(), "stranger": "somebody-else"} {
		pair, err := o.Cluster.IssueFrontProxyCertFor(commonName)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := tls.X509KeyPair(pair.CertPEM, pair.KeyPEM)
		if err != nil {
			t.Fatal(err)
		}
		o.Env.Users[name] = Credentials{Cert: &cert}
	}
	var cases []Case
	for _, rv := range []string{"", "?resourceVersion=0"} {
		named := func(c Case, user string) Case { return c.header("X-Remote-User", user) }
		cases = append(cases,
			named(either("proxy/allowed"+rv, podsPath+rv).status(200).from("proxy"), bob),
			named(fails("proxy/63 refused"+rv, podsPath+rv, 403, `User \"alice\"`).from("proxy"), alice),
			named(get("proxy/by group"+rv, "/api/v1/namespaces/alpha/configmaps/shared"+rv).from("proxy"), "x").header("X-Remote-Group", "dev"),
			named(either("proxy/masters"+rv, "/api/v1/secrets"+rv).status(200).from("proxy"), "x").header("X-Remote-Group", "system:masters"),
			named(either("proxy/headers of a name that is not allowed"+rv, podsPath+rv).from("stranger"), bob),
			either("proxy/no user named"+rv, podsPath+rv).from("proxy"),
			named(either("proxy/65 and impersonates"+rv, podsPath+rv).status(200).from("proxy"), "impostor").header("Impersonate-User", bob),
		)
	}
	review := reviewCase("proxy/61 SelfSubjectReview", "authentication.k8s.io/v1", "selfsubjectreviews", "SelfSubjectReview", `{}`).from("proxy").
		header("X-Remote-User", "zoe").header("X-Remote-Uid", "u1").header("X-Remote-Group", "g").header("X-Remote-Extra-Some%2fKey", "v").contains(`"zoe"`)
	RunReads(ctx, t, o.Env, oracle, gateway, append(cases, review))
}
