package upstream

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
)

type userKey struct{}

// userOf is whom an in-process handler takes a request for, "" for nobody.
func userOf(r *http.Request) string {
	name, _ := r.Context().Value(userKey{}).(string)
	return name
}

func localClient(t testing.TB, handler http.HandlerFunc, change ...func(*InProcess)) *Client {
	t.Helper()
	p := &InProcess{Handler: handler, WithUser: func(ctx context.Context, u user.Info) context.Context {
		name := "gateway"
		if u != nil {
			name = u.GetName()
		}
		return context.WithValue(ctx, userKey{}, name)
	}}
	for _, f := range change {
		f(p)
	}
	c, err := New(Options{InProcess: p, UserAgent: "kubeweir/test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// TestInProcessStalledUpload: a client that stops sending a large body gets its answer
// at the timeout, though the handler waits for the rest.
func TestInProcessStalledUpload(t *testing.T) {
	c := localClient(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.ReadAll(r.Body) })
	c.limits.RequestTimeout = 10 * time.Millisecond
	body, client := io.Pipe()
	t.Cleanup(func() { _ = client.Close() })
	r := request("POST", "/api/v1/namespaces/n/pods")
	r.Body, r.ContentLength = body, smallUpload+1
	resp := c.Forward(testContext(t), r, Credentials{As: AsGateway})
	if finish(t, resp); resp.Status != http.StatusGatewayTimeout {
		t.Errorf("got %d", resp.Status)
	}
}

// TestInProcess: what the handler sees of a client's request and of the gateway's.
func TestInProcess(t *testing.T) {
	var seen *http.Request
	var body []byte
	c := localClient(t, func(w http.ResponseWriter, r *http.Request) {
		seen = r
		body, _ = io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Seen", "yes")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(`{"kind":"Pod"}`))
	})
	r := request("POST", "/api/v1/namespaces/n/pods?dryRun=All", "Authorization", "Bearer t", "Impersonate-User", "bob", "X-Forwarded-For", "198.51.100.1",
		"X-Remote-User", "root", "Sec-Websocket-Protocol", tokenProtocol+"dG9rZW4, v5.channel.k8s.io")
	jane := &user.DefaultInfo{Name: "jane"}
	resp := c.Forward(testContext(t), withBody(r, "the body"), Credentials{User: jane, KeepImpersonation: true})
	if got := finish(t, resp); resp.Status != 201 || got != `{"kind":"Pod"}` || resp.Header.Get("X-Seen") != "yes" {
		t.Errorf("%d %q", resp.Status, got)
	}
	if userOf(seen) != "jane" || seen.Host != "gateway" || seen.RemoteAddr != "192.0.2.7:4711" || seen.RequestURI != "/api/v1/namespaces/n/pods?dryRun=All" ||
		string(body) != "the body" || seen.ContentLength != 8 {
		t.Errorf("%s: %+v with %q", userOf(seen), seen, body)
	}
	for name, want := range map[string]string{
		"Authorization": "", "X-Remote-User": "", "Impersonate-User": "bob", "X-Forwarded-For": "198.51.100.1", "Sec-Websocket-Protocol": tokenProtocol + ", v5.channel.k8s.io",
	} {
		if got := seen.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	finish(t, c.Forward(testContext(t), request("GET", "/x"), Credentials{As: AsGateway}))
	if userOf(seen) != "gateway" {
		t.Errorf("the gateway's own: %q", userOf(seen))
	}
	finish(t, c.Forward(testContext(t), request("GET", "/x", "Authorization", "Bearer t"), Credentials{}))
	if userOf(seen) != "" || seen.Header.Get("Authorization") != "Bearer t" {
		t.Errorf("a client with a token: %q, %v", userOf(seen), seen.Header)
	}
	clients, err := kubernetes.NewForConfigAndClient(c.ClientGo())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := clients.CoreV1().Pods("n").Create(testContext(t), pod("a", ""), metav1.CreateOptions{}); err != nil || userOf(seen) != "gateway" || seen.UserAgent() != "kubeweir/test" {
		t.Errorf("client-go: %v, %q", err, userOf(seen))
	}
}

// TestInProcessStreams: a watch that is forwarded ends with its client.
func TestInProcessStreams(t *testing.T) {
	over := make(chan struct{})
	c := localClient(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "event\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		close(over)
	})
	resp := c.Forward(testContext(t), request("GET", "/api/v1/pods?watch=true"), Credentials{User: &user.DefaultInfo{Name: "jane"}})
	w := newRecorder()
	resp.Stream.Start(w)
	if got := within(t, w.frames, "the event"); got != "event\n" {
		t.Errorf("%q", got)
	}
	resp.Stream.Stop()
	within(t, over, "the handler's end")
	resp.Done(0, nil)
}

func TestInProcessPanic(t *testing.T) {
	c := localClient(t, func(http.ResponseWriter, *http.Request) { panic("no") })
	resp := c.Forward(testContext(t), withBody(request("POST", "/api/v1/namespaces/n/pods"), "x"), Credentials{})
	if body := finish(t, resp); resp.Status != 503 || !bytes.Contains([]byte(body), []byte("it is not known whether the request was applied")) {
		t.Errorf("%d %s", resp.Status, body)
	}
}

// TestInProcessUpgrade: exec, by both protocols.
func TestInProcessUpgrade(t *testing.T) {
	c := localClient(t, echoAgent(t))
	f := front(t, c, Credentials{User: &user.DefaultInfo{Name: "jane"}})
	target, err := url.Parse(f.URL + "/api/v1/namespaces/n/pods/p/exec?command=cat&stdin=true&stdout=true")
	if err != nil {
		t.Fatal(err)
	}
	spdy, err := remotecommand.NewSPDYExecutor(&rest.Config{Host: f.URL}, "POST", target)
	if err != nil {
		t.Fatal(err)
	}
	webSocket, err := remotecommand.NewWebSocketExecutor(&rest.Config{Host: f.URL}, "GET", target.String())
	if err != nil {
		t.Fatal(err)
	}
	for name, executor := range map[string]remotecommand.Executor{"SPDY": spdy, "WebSocket": webSocket} {
		content := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
		var got bytes.Buffer
		err = executor.StreamWithContext(testContext(t), remotecommand.StreamOptions{Stdin: bytes.NewReader(content), Stdout: &got})
		if err != nil || !bytes.Equal(got.Bytes(), content) {
			t.Errorf("%s: %d of %d bytes, %v", name, got.Len(), len(content), err)
		}
	}
}

type fixedProgress struct{ last, current uint64 }

func (p fixedProgress) Current(context.Context) (uint64, uint64, bool, error) {
	return p.last, p.current, true, nil
}

// TestImmediateSource: progress is that of the collection's open watch.
func TestImmediateSource(t *testing.T) {
	type watchKey struct{}
	c := localClient(t, func(w http.ResponseWriter, r *http.Request) {
		if feeds := !r.URL.Query().Has("timeoutSeconds"); userOf(r) != "gateway" || (r.Context().Value(watchKey{}) != nil) != feeds {
			t.Errorf("a watch of %q, a feed's: %v", userOf(r), feeds)
		}
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}, func(p *InProcess) {
		p.Track = func(ctx context.Context) (context.Context, Progress) {
			return context.WithValue(ctx, watchKey{}, true), fixedProgress{5, 7}
		}
	})
	src := c.ImmediateSource()
	if _, _, _, err := src.Progress(t.Context(), pods(), api.JSON); !errors.Is(err, source.ErrUnsupported) {
		t.Errorf("without a watch: %v", err)
	}
	if age := time.Since(src.LastContact()); age > time.Minute {
		t.Errorf("last contact %v ago", age)
	}
	accepted := errors.New("accepted")
	probe := source.WatchOptions{ResourceVersion: 5, TimeoutSeconds: 3, Probe: true}
	err := src.Watch(testContext(t), pods(), api.JSON, source.WatchOptions{ResourceVersion: 5}, func(source.Event) error {
		last, current, shared, err := src.Progress(t.Context(), pods(), api.JSON)
		if last != 5 || current != 7 || !shared || err != nil {
			t.Errorf("%d, %d, %v, %v", last, current, shared, err)
		}
		if _, _, _, err := src.Progress(t.Context(), pods(), api.Protobuf); !errors.Is(err, source.ErrUnsupported) {
			t.Errorf("of another collection: %v", err)
		}
		// A look beside it, begun and ended, changes nothing.
		if err := src.Watch(testContext(t), pods(), api.JSON, probe, func(source.Event) error { return accepted }); !errors.Is(err, accepted) {
			t.Error(err)
		}
		if _, _, _, err := src.Progress(t.Context(), pods(), api.JSON); err != nil {
			t.Errorf("after a probe: %v", err)
		}
		return accepted
	})
	if !errors.Is(err, accepted) {
		t.Error(err)
	}
	if _, _, _, err := src.Progress(t.Context(), pods(), api.JSON); !errors.Is(err, source.ErrUnsupported) {
		t.Errorf("after the watch: %v", err)
	}
}

// BenchmarkForwardInProcess is BenchmarkForward without a connection.
func BenchmarkForwardInProcess(b *testing.B) {
	object := bytes.Repeat([]byte("x"), 6<<10)
	c := localClient(b, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(object)
	})
	ctx := testContext(b)
	jane := &user.DefaultInfo{Name: "jane"}
	b.ReportAllocs()
	for b.Loop() {
		r := request("POST", "/api/v1/namespaces/n/pods/p", "Accept", "application/json", "User-Agent", "bench", "Authorization", "Bearer t")
		r.Body, r.ContentLength = bytes.NewReader(object), int64(len(object))
		resp := c.Forward(ctx, r, Credentials{User: jane})
		if resp.Status != 200 || len(resp.Body) != len(object) {
			b.Fatal(resp.Status)
		}
	}
}
