package consistency

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeweir/kubeweir/cache/freshness"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
)

func listRequest(accept string) *api.Request {
	return &api.Request{Method: "GET", RawPath: "/api/v1/pods", Header: api.Header{
		{Name: "Accept", Value: accept}, {Name: "Authorization", Value: "Bearer secret"},
		{Name: "Audit-Id", Value: "mine"}, {Name: "User-Agent", Value: "test"},
	}}
}

func TestCollapseSharesTheNextRequest(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		var mu sync.Mutex
		var sent []*api.Request
		c := NewCoalescer(1<<20, time.Now, func(_ context.Context, r *api.Request) *api.Response {
			mu.Lock()
			sent = append(sent, r)
			mu.Unlock()
			<-gate
			body := "answer"
			return &api.Response{Status: 200, Length: -1, BodyTo: strings.NewReader(body),
				Header: api.Header{{Name: "Audit-Id", Value: "theirs"}, {Name: "Content-Type", Value: "application/json"}}}
		})
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				resp, err := c.Do(t.Context(), listRequest("application/json"), false, new(freshness.Cost))
				if err != nil || string(resp.Body) != "answer" || resp.Header.Has("Audit-Id") {
					t.Errorf("got %v, %v", resp, err)
				}
			})
			synctest.Wait()
		}
		gate <- struct{}{}
		synctest.Wait()
		gate <- struct{}{}
		wg.Wait()
		if len(sent) != 2 {
			t.Errorf("%d upstream requests for one caller and nine late ones, want 2", len(sent))
		}
		for _, r := range sent {
			if r.Header.Has("Authorization") || r.Header.Has("Audit-Id") {
				t.Errorf("a shared request carries a caller's header: %v", r.Header)
			}
		}
	})
}

func TestCollapseKeepsFormsApart(t *testing.T) {
	var n int
	c := NewCoalescer(1<<20, time.Now, func(_ context.Context, r *api.Request) *api.Response {
		n++
		return &api.Response{Status: 200, Body: []byte(r.Header.Get("Accept"))}
	})
	for _, accept := range []string{"application/json", "application/yaml"} {
		resp, err := c.Do(t.Context(), listRequest(accept), false, new(freshness.Cost))
		if err != nil || string(resp.Body) != accept {
			t.Errorf("%s: %v, %v", accept, resp, err)
		}
	}
}

func TestCollapseGivesUpOnLargeResponses(t *testing.T) {
	now := time.Unix(0, 0)
	fetched := 0
	c := NewCoalescer(100, func() time.Time { return now }, func(context.Context, *api.Request) *api.Response {
		fetched++
		return &api.Response{Status: 200, Length: -1, BodyTo: bytes.NewReader(make([]byte, 101))}
	})
	for range 3 {
		if _, err := c.Do(t.Context(), listRequest(""), false, new(freshness.Cost)); !errors.Is(err, ErrTooLarge) {
			t.Errorf("error %v", err)
		}
	}
	if fetched != 1 {
		t.Errorf("fetched %d times what is known to be too large", fetched)
	}
	now = now.Add(2 * largeFor)
	_, _ = c.Do(t.Context(), listRequest(""), false, new(freshness.Cost))
	if fetched != 2 {
		t.Errorf("what was too large once is never tried again")
	}
}

// TestCollapseSharesLargeResponses: a body that comes in portions is whole for all
// who share it.
func TestCollapseSharesLargeResponses(t *testing.T) {
	body := make([]byte, 5<<20+1234)
	for i := range body {
		body[i] = byte(i * 7919 >> 8)
	}
	for _, size := range []int{0, 1, firstPiece, firstPiece + 1, len(body)} {
		c := NewCoalescer(int64(size), time.Now, func(context.Context, *api.Request) *api.Response {
			return &api.Response{Status: 200, Length: -1, BodyTo: portions(body[:size])}
		})
		resp, err := c.Do(t.Context(), listRequest(""), false, new(freshness.Cost))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			var got bytes.Buffer
			if resp.BodyTo == nil {
				got.Write(resp.Body)
			} else if n, err := resp.BodyTo.WriteTo(&got); err != nil || n != resp.Length {
				t.Fatal(n, err)
			}
			if !bytes.Equal(got.Bytes(), body[:size]) {
				t.Errorf("%d bytes: not the same", size)
			}
		}
	}
}

// portions is a body that is written in portions of odd sizes.
type portions []byte

func (p portions) WriteTo(w io.Writer) (written int64, err error) {
	for n := 1; len(p) > 0; n = n*3%40_000 + 1 {
		k := min(len(p), n)
		m, err := w.Write(p[:k])
		written += int64(m)
		if err != nil {
			return written, err
		}
		p = p[k:]
	}
	return written, nil
}

// failing is a body that breaks off.
type failing struct{}

func (failing) WriteTo(w io.Writer) (int64, error) {
	n, _ := w.Write([]byte("half"))
	return int64(n), errors.New("upstream died")
}

func TestCollapseNeverServesHalfAnResponse(t *testing.T) {
	c := NewCoalescer(100, time.Now, func(context.Context, *api.Request) *api.Response {
		return &api.Response{Status: 200, Length: -1, BodyTo: failing{}}
	})
	if resp, err := c.Do(t.Context(), listRequest(""), false, new(freshness.Cost)); err == nil {
		t.Errorf("served %q", resp.Body)
	}
}

// TestCollapsedResponsesAreBoundedTogether: the memory held for responses is bounded however many
// requests differ, and requests that exceed the bound are forwarded.
func TestCollapsedResponsesAreBoundedTogether(t *testing.T) {
	const size = firstPiece
	length := int64(-1)
	c := NewCoalescer(size, time.Now, func(context.Context, *api.Request) *api.Response {
		return &api.Response{Status: 200, Length: length, BodyTo: bytes.NewReader(make([]byte, size-10))}
	})
	n := 0
	get := func() (*api.Response, error) {
		r := listRequest("application/json")
		n++
		r.RawQuery = strings.Repeat("x", n)
		return c.Do(t.Context(), r, false, new(freshness.Cost))
	}
	for _, length = range []int64{-1, size - 10} {
		var held []*api.Response
		for range maxResponses {
			resp, err := get()
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, resp)
		}
		if _, err := get(); !errors.Is(err, ErrNoRoom) {
			t.Errorf("one too many: %v", err)
		}
		if len(c.large.until) != 0 {
			t.Error("it is remembered as too large")
		}
		held[0].Done(0, nil)
		resp, err := get()
		if err != nil {
			t.Fatalf("after one is done: %v", err)
		}
		held[0] = resp
		for _, resp := range held {
			resp.Done(0, nil)
		}
		if got := c.held.Load(); got != 0 {
			t.Errorf("%d bytes are left over", got)
		}
	}
}

// TestSharedResponseCountsOnce: a response counts once, until the last client that shares it is done.
func TestSharedResponseCountsOnce(t *testing.T) {
	c := NewCoalescer(1<<20, time.Now, nil)
	a, err := c.Read(&api.Response{Status: 200, Body: []byte("answer")})
	if err != nil {
		t.Fatal(err)
	}
	first, second := a.Response(), a.Response()
	first.Done(0, nil)
	if got := c.held.Load(); got != int64(len("answer")) {
		t.Errorf("%d bytes are held", got)
	}
	second.Done(0, nil)
	if got := c.held.Load(); got != 0 {
		t.Errorf("%d bytes are left over", got)
	}
}
