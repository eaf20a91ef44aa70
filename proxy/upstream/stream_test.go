package upstream

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/internal/api"
)

// lines serves a response line by line, as the test asks for them.
type lines struct {
	next    chan string // closed: the response ends; "abort": it breaks off
	arrived chan struct{}
	gone    chan struct{}
}

func newLines() *lines {
	return &lines{next: make(chan string), arrived: make(chan struct{}, 10), gone: make(chan struct{}, 10)}
}

func (l *lines) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.(http.Flusher).Flush()
	l.arrived <- struct{}{}
	defer func() { l.gone <- struct{}{} }()
	for {
		select {
		case line, ok := <-l.next:
			if !ok {
				return
			}
			if line == "abort" {
				panic(http.ErrAbortHandler)
			}
			_, _ = io.WriteString(w, line)
			w.(http.Flusher).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

func TestStreamsFlow(t *testing.T) {
	bothProtocols(t, func(t *testing.T, options ...serverOption) {
		for _, tt := range []struct {
			target string
			clean  bool
		}{
			{"/api/v1/pods?watch=true", true},
			{"/api/v1/watch/pods", true},
			{"/api/v1/namespaces/n/pods/p/log?follow=1", true},
			{"/api/v1/namespaces/n/services/s/proxy/events", true},
			{"/apis/apps/v1/deployments?watch=1", false},
		} {
			t.Run(tt.target, func(t *testing.T) {
				l := newLines()
				s := newServer(t, l.ServeHTTP, options...)
				c := s.client(t)
				resp := c.Forward(testContext(t), request("GET", tt.target), Credentials{})
				if resp.Stream == nil {
					t.Fatalf("the response is no stream: %+v", resp)
				}
				w := newRecorder()
				resp.Stream.Start(w)
				for i := range 3 {
					line := fmt.Sprintf("line %d\n", i)
					l.next <- line
					if got := within(t, w.frames, "the line"); got != line {
						t.Fatalf("got %q", got)
					}
				}
				if tt.clean {
					close(l.next)
				} else {
					l.next <- "abort"
				}
				within(t, w.ended, "the end")
				if w.aborted == tt.clean {
					t.Errorf("aborted: %v", w.aborted)
				}
				resp.Stream.Stop()
				resp.Done(0, nil)
			})
		}
	})
}

func TestStopEndsStreamsUpstream(t *testing.T) {
	bothProtocols(t, func(t *testing.T, options ...serverOption) {
		for name, use := range map[string]func(*testing.T, *api.Response){
			"stopped while idle": func(t *testing.T, resp *api.Response) {
				resp.Stream.Start(newRecorder())
				resp.Stream.Stop()
			},
			"never started": func(t *testing.T, resp *api.Response) { resp.Stream.Stop() },
			"started afterwards": func(t *testing.T, resp *api.Response) {
				resp.Stream.Stop()
				w := newRecorder()
				resp.Stream.Start(w)
				within(t, w.ended, "the end")
			},
			"given up": func(t *testing.T, resp *api.Response) { resp.Done(0, errors.New("client left")) },
		} {
			t.Run(name, func(t *testing.T) {
				l := newLines()
				s := newServer(t, l.ServeHTTP, options...)
				resp := s.client(t).Forward(testContext(t), request("GET", "/api/v1/pods?watch=1"), Credentials{})
				within(t, l.arrived, "the request")
				use(t, resp)
				within(t, l.gone, "the end upstream")
			})
		}
	})
}

func TestClientOfStreamIsGone(t *testing.T) {
	l := newLines()
	s := newServer(t, l.ServeHTTP)
	resp := s.client(t).Forward(testContext(t), request("GET", "/api/v1/pods?watch=1"), Credentials{})
	w := newRecorder()
	w.fail = errors.New("broken pipe")
	resp.Stream.Start(w)
	l.next <- "x"
	within(t, l.gone, "the end upstream")
	within(t, w.ended, "the end")
	resp.Stream.Stop()
}

func TestLargeStreamsUseLargerBuffers(t *testing.T) {
	const size = 4 << 20
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		for range 64 {
			_, _ = io.WriteString(w, strings.Repeat("x", size/64))
		}
	})
	resp := s.client(t).Forward(testContext(t), request("GET", "/api/v1/nodes/n/proxy/big"), Credentials{})
	w := newRecorder()
	w.frames = make(chan string, size/minStreamBuffer)
	resp.Stream.Start(w)
	within(t, w.ended, "the end")
	resp.Stream.Stop()
	if len(w.String()) != size || w.aborted {
		t.Errorf("%d bytes, aborted %v", len(w.String()), w.aborted)
	}
	if n := len(w.frames); n > size/(4<<10) {
		t.Errorf("%d writes", n)
	}
}

// TestManyStalledStreamsAreBounded: clients that stop reading hold back the data that is buffered
// for them here.
func TestManyStalledStreamsAreBounded(t *testing.T) {
	const streams, each = sharedRequests + 200, 1 << 20
	var sent atomic.Int64
	stuck := make(chan struct{}, streams)
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		line := strings.Repeat("x", 16<<10)
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Second))
		for range 2 * each / len(line) {
			n, err := io.WriteString(w, line)
			sent.Add(int64(n))
			if err != nil {
				break
			}
		}
		stuck <- struct{}{}
	})
	c := s.client(t)
	for range streams {
		resp := c.Forward(testContext(t), request("GET", "/api/v1/pods?watch=1&unknown=1"), Credentials{})
		if resp.Status != 200 {
			t.Fatal(resp.Status)
		}
		defer resp.Stream.Stop()
	}
	for range streams {
		within(t, stuck, "a stream to stall")
	}
	// Besides the windows there is what the server has not passed on.
	if got, most := sent.Load(), int64(sharedRequests*each+200*(narrowWindow+64<<10)); got > most*5/4 {
		t.Errorf("%d bytes are held for %d streams that nobody reads, %d at most", got, streams, most)
	}
	if n := c.shared.Load(); n != streams {
		t.Errorf("%d requests share connections, want %d", n, streams)
	}
}

// TestErrorsOfStreams are ordinary responses.
func TestErrorsOfStreams(t *testing.T) {
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, "no")
	})
	resp := s.client(t).Forward(testContext(t), request("GET", "/api/v1/pods?watch=1"), Credentials{})
	if resp.Stream != nil || resp.Status != 403 || finish(t, resp) != "no" {
		t.Errorf("%+v", resp)
	}
}

// TestBidirectional: a proxied request may send and receive at the same time.
func TestBidirectional(t *testing.T) {
	bothProtocols(t, func(t *testing.T, options ...serverOption) {
		s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
			control := http.NewResponseController(w)
			_ = control.EnableFullDuplex()
			_ = control.Flush()
			buf := make([]byte, 10)
			for {
				n, err := r.Body.Read(buf)
				_, _ = w.Write(buf[:n])
				_ = control.Flush()
				if err != nil {
					return
				}
			}
		}, options...)
		reader, writer := io.Pipe()
		r := request("POST", "/api/v1/nodes/n/proxy/echo")
		r.Body, r.ContentLength = reader, -1
		resp := s.client(t).Forward(testContext(t), r, Credentials{})
		if resp.BodyTo == nil {
			t.Fatalf("%+v", resp)
		}
		back, w := io.Pipe()
		go func() {
			n, err := resp.BodyTo.WriteTo(w)
			resp.Done(n, err)
			_ = w.CloseWithError(err)
		}()
		for _, word := range []string{"one", "two", "three"} {
			_, _ = io.WriteString(writer, word)
			got := make([]byte, len(word))
			if _, err := io.ReadFull(back, got); err != nil || string(got) != word {
				t.Fatalf("%q, %v", got, err)
			}
		}
		writer.Close()
		if rest, err := io.ReadAll(back); len(rest) != 0 || err != nil {
			t.Errorf("%q, %v", rest, err)
		}
	})
}
