package console

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeweir/kubeweir/internal/bubble"
)

// recorder is the ResponseWriter of a streaming client.
type recorder struct {
	header http.Header
	mu     sync.Mutex
	code   int
	body   bytes.Buffer
	flushs int
	stuck  atomic.Bool // the client does not read
	until  time.Time
}

func (r *recorder) Header() http.Header { return r.header }
func (r *recorder) WriteHeader(code int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.code = code
}

func (r *recorder) Write(p []byte) (int, error) {
	if r.stuck.Load() {
		time.Sleep(time.Until(r.until))
		return 0, context.DeadlineExceeded
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.body.Write(p)
}

func (r *recorder) FlushError() error                  { r.flushs++; return nil }
func (r *recorder) SetWriteDeadline(t time.Time) error { r.until = t; return nil }

func (r *recorder) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.body.String()
}

// startStream requests events; the channel is closed when the response ends.
func startStream(c *Console, ctx context.Context, query string) (*recorder, chan struct{}) {
	rec, done := &recorder{header: make(http.Header)}, make(chan struct{})
	r := httptest.NewRequestWithContext(ctx, "GET", "http://127.0.0.1:9444/console/api/events?"+query, nil)
	r.RemoteAddr = "127.0.0.1:1"
	go func() {
		defer close(done)
		c.ServeHTTP(rec, r)
	}()
	return rec, done
}

func TestEventsArriveAtOnceAndThenEverySecond(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := busy()
		c := open(t, serving(clusterOf("", h)))
		rec, done := startStream(c, t.Context(), "topics=overview,collections")
		other, otherDone := startStream(c, t.Context(), "topics=overview")
		time.Sleep(3*eventPeriod + eventPeriod/2)
		synctest.Wait()
		if rec.header.Get("Content-Type") != "text/event-stream" {
			t.Errorf("%v", rec.header)
		}
		if n := strings.Count(rec.text(), "event: overview\ndata: {"); n != 4 {
			t.Errorf("%d overviews", n)
		}
		if n := strings.Count(rec.text(), "event: collections\n"); n != 4 || strings.Contains(rec.text(), `"eventRate"`) {
			t.Errorf("%d times collections, or with series", n)
		}
		first := strings.SplitN(strings.SplitN(rec.text(), "data: ", 3)[1], "\n", 2)[0]
		var o Overview
		if err := json.Unmarshal([]byte(first), &o); err != nil || o.Requests.Total != 1000 {
			t.Errorf("%v: %.100s", err, first)
		}
		// Both streams share the documents, which are built four times.
		if n := h.looks.Load(); n != 4 {
			t.Errorf("%d looks for two streams", n)
		}
		c.Close()
		<-done
		<-otherDone
		for _, r := range []*recorder{rec, other} {
			if !strings.HasSuffix(r.text(), "event: end\ndata: {\"reason\":\"shutting-down\"}\n\n") {
				t.Errorf("the end is %q", r.text()[max(0, len(r.text())-80):])
			}
		}
	})
}

func TestEventsEndForGoneAndStuckClients(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := open(t, serving(clusterOf("", busy())))
		defer c.Close()
		ctx, leave := context.WithCancel(t.Context())
		_, done := startStream(c, ctx, "topics=overview")
		time.Sleep(eventPeriod)
		leave()
		<-done

		rec, stuck := startStream(c, t.Context(), "topics=overview")
		synctest.Wait()
		rec.stuck.Store(true)
		began := time.Now()
		<-stuck
		if waited := time.Since(began); waited > writeTimeout+2*eventPeriod {
			t.Errorf("ended after %v", waited)
		}
		if n := c.streams.Load(); n != 0 {
			t.Errorf("%d streams are left", n)
		}
	})
}

func TestEventsAreBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := open(t, serving(clusterOf("", busy())))
		var all []chan struct{}
		for range maxStreams {
			_, done := startStream(c, t.Context(), "topics=overview")
			all = append(all, done)
		}
		synctest.Wait()
		if w := request(c, "GET", "/console/api/events?topics=overview", nil); w.Code != 503 {
			t.Errorf("%d", w.Code)
		}
		c.Close()
		for _, done := range all {
			<-done
		}
	})
}
