package proxy

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/proxy/healthz"
	"github.com/kubeweir/kubeweir/proxy/usage"
)

// count makes a request and reads the answer, or the beginning of one that goes on.
func (b *gatewayBench) count(line string, header ...string) *api.Response {
	b.t.Helper()
	resp := b.gateway.Serve(b.t.Context(), request(line, header...))
	switch {
	case resp.Stream != nil:
	case resp.BodyTo != nil:
		n, err := resp.BodyTo.WriteTo(io.Discard)
		resp.Done(n, err)
	default:
		resp.Done(int64(len(resp.Body)), nil)
	}
	return resp
}

// rowOf is what a user, user agent or resource has cost in the last minute.
func (b *gatewayBench) rowOf(name string) usage.Row {
	r := b.gateway.Usage().Top(usage.Query{K: 100}, time.Now())
	for _, rows := range [][]usage.Row{r.Users, r.UserAgents, r.Resources} {
		for _, row := range rows {
			if row.Name == name {
				return row
			}
		}
	}
	return usage.Row{}
}

// TestClientUsage: each kind of response counts for its client, with its upstream requests.
func TestClientUsage(t *testing.T) {
	const pods, pod = "/api/v1/pods", "/api/v1/namespaces/default/pods/a"
	for _, c := range []struct {
		name, line     string
		before         string // asked first, by somebody else
		header         string
		requests, more float64 // of the upstream, of bytes more than
	}{
		{name: "the first read asks who and what", line: "GET " + pods + "?resourceVersion=0", requests: 2, more: 4000},
		{name: "as somebody else", line: "GET " + pods + "?resourceVersion=0", header: "Impersonate-User: joe", requests: 3},
		{name: "forwarded", line: "GET /version", requests: 2},
		{name: "a write", line: "DELETE " + pod, requests: 2},
		{name: "a list without a version", line: "GET " + pods, requests: 3},
		{name: "a get without a version", line: "GET " + pod, requests: 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				b := newGatewayBench(t, nil)
				b.source.Create(cachetest.Pods, cachetest.Pod("default/a", ""))
				b.count("GET " + pods + "?resourceVersion=0")
				header := []string{"Authorization: Bearer jane", "User-Agent: k9s/1"}
				if c.header != "" {
					header = append(header, c.header)
				}
				b.count(c.line, header...)
				jane := b.rowOf("jane")
				if jane.Requests != 1 || jane.UpstreamRequests != c.requests || jane.UpstreamBytes < c.more || jane.CPUSeconds <= 0 || jane.Bytes == 0 {
					t.Errorf("first: %+v", jane)
				}
				if agent := b.rowOf("k9s/1"); agent.Cost != jane.Cost {
					t.Errorf("the user agent: %+v, the user: %+v", agent, jane)
				}
				// The gateway remembers the identity and the permissions of the client.
				b.count(c.line, header...)
				again := b.rowOf("jane")
				if requested := again.UpstreamRequests - jane.UpstreamRequests; again.Requests != 2 || requested > 1 {
					t.Errorf("again: %+v", again)
				}
				if anybody := b.rowOf("joe"); anybody.Requests != 0 {
					t.Errorf("whom she acts as pays: %+v", anybody)
				}
			})
		})
	}
}

// TestSharedUpstreamRequestUsage: clients that wait for the same upstream request each account for
// a part of it.
func TestSharedUpstreamRequestUsage(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newGatewayBench(t, nil)
		b.source.Create(cachetest.Pods, cachetest.Pod("default/a", ""))
		const users = 4
		user := func(i int) string { return fmt.Sprint("user-", i) }
		do := func(i int) { b.count("GET /api/v1/namespaces/default/pods/a", "Authorization: Bearer "+user(i)) }
		for i := range users {
			do(i) // alone
		}
		time.Sleep(2 * time.Second)
		before := make([]float64, users)
		for i := range users {
			before[i] = b.rowOf(user(i)).UpstreamRequests
		}
		gate, sent := make(chan struct{}), b.upstream.count()
		b.upstream.response = func(*api.Request) *api.Response {
			<-gate
			return &api.Response{Status: 200, Body: []byte(strings.Repeat("x", 1000))}
		}
		var all sync.WaitGroup
		for i := range users {
			all.Go(func() { do(i) })
			synctest.Wait()
		}
		close(gate)
		all.Wait()
		var sum float64
		for i := range users {
			sum += b.rowOf(user(i)).UpstreamRequests - before[i]
		}
		if made := b.upstream.count() - sent; made != 2 || sum < 1.99 || sum > 2.01 {
			t.Errorf("%d requests were made, %v are counted", made, sum)
		}
	})
}

// countingWriter takes what is written.
type countingWriter struct {
	mu     sync.Mutex
	bytes  int
	closed bool
}

func (w *countingWriter) WriteFrames(frames [][]byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range frames {
		w.bytes += len(f)
	}
	return nil
}

func (w *countingWriter) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
}

func (w *countingWriter) Abort() { w.Close() }

func (w *countingWriter) state() (bytes int, closed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bytes, w.closed
}

// sharedWriter is one whose connection carries others, too.
type sharedWriter struct{ countingWriter }

func (w *sharedWriter) QueueFrames(frames [][]byte) bool { return w.WriteFrames(frames) == nil }
func (w *sharedWriter) Flush()                           {}

// TestWatchUsage: the bytes of a watch count while it is open, whatever it is written to.
func TestWatchUsage(t *testing.T) {
	for name, w := range map[string]interface {
		api.StreamWriter
		state() (int, bool)
	}{"HTTP/1.1": &countingWriter{}, "HTTP/2": &sharedWriter{}} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				b := newGatewayBench(t, nil)
				resp := b.count("GET /api/v1/pods?watch=1&resourceVersion=0", "Authorization: Bearer jane")
				resp.Stream.Start(w)
				for i := range 10 {
					b.source.Create(cachetest.Pods, cachetest.Pod(fmt.Sprint("default/", i), ""))
					time.Sleep(100 * time.Millisecond)
					synctest.Wait()
					sent, _ := w.state()
					if jane := b.rowOf("jane"); jane.Bytes != int64(sent) || sent == 0 || jane.Requests != 1 || jane.Watches != 1 {
						t.Fatalf("%d bytes were sent: %+v", sent, jane)
					}
				}
				resp.Stream.Stop()
				sent, _ := w.state()
				resp.Done(int64(sent), nil)
				if jane := b.rowOf("jane"); jane.Bytes != int64(sent) || jane.Watches != 0 || jane.Requests != 1 {
					t.Errorf("%d bytes were sent: %+v", sent, jane)
				}
			})
		})
	}
}

// TestUpgradeUsage: the bytes of an upgraded connection count while it is open, in both directions,
// and it can end in one direction.
func TestUpgradeUsage(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newGatewayBench(t, nil)
		b.upstream.response = func(*api.Request) *api.Response {
			return &api.Response{Status: 101, Upgrade: func(conn net.Conn) {
				_, _ = io.Copy(conn, conn)
				if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err == nil {
					t.Error("a pipe has no half")
				}
			}}
		}
		resp := b.gateway.Serve(t.Context(), request("POST /api/v1/namespaces/default/pods/a/exec", "Authorization: Bearer jane", "Upgrade: SPDY/3.1"))
		here, there := net.Pipe()
		done := make(chan struct{})
		go func() { resp.Upgrade(there); close(done) }()
		_, _ = here.Write(make([]byte, 100))
		_, _ = io.ReadFull(here, make([]byte, 100))
		synctest.Wait()
		if jane := b.rowOf("jane"); jane.Bytes != 200 || jane.UpstreamBytes < 200 || jane.Watches != 1 {
			t.Errorf("%+v", jane)
		}
		_ = here.Close()
		<-done
		resp.Done(0, nil)
		if jane := b.rowOf("jane"); jane.Requests != 1 || jane.Watches != 0 {
			t.Errorf("%+v", jane)
		}
	})
}

// TestHealthIsNobodys: probes are not among those who ask.
func TestHealthIsNobodys(t *testing.T) {
	b := newGatewayBench(t, func(o *Options) { o.Health = healthz.New() })
	b.count("GET /readyz")
	if r := b.gateway.Usage().Top(usage.Query{K: 1}, time.Now()); r.Total.Requests != 0 {
		t.Errorf("%+v", r)
	}
}
