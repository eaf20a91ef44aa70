package inprocess

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/internal/writertest"
)

// responseStream writes deliveries to a response.
type responseStream struct {
	w     http.ResponseWriter
	over  chan struct{}
	close sync.Once
}

func (s *responseStream) WriteFrames(frames [][]byte) error {
	for _, f := range frames {
		if n, err := s.w.Write(f); err != nil || n != len(f) {
			return errors.Join(io.ErrShortWrite, err)
		}
	}
	return http.NewResponseController(s.w).Flush()
}

func (s *responseStream) Close() { s.close.Do(func() { close(s.over) }) }
func (s *responseStream) Abort() { s.Close() }

func TestResponsesDeliverWhatTheyAccept(t *testing.T) {
	streams := make(chan *responseStream, 1)
	transport := New(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s := &responseStream{w: w, over: make(chan struct{})}
		streams <- s
		<-s.over
	}), nil)
	t.Cleanup(transport.Close)
	o := writertest.Options{Limits: []int{512, 2048, 4096, bufferSize}, Deliveries: 300, Streams: 2}
	writertest.Run(t, o, func(t *testing.T) writertest.Pipe {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://x/", nil)
		if err != nil {
			t.Fatal(err)
		}
		p := writertest.Pipe{Client: &laterBody{transport: transport, req: req}}
		p.Client.(*laterBody).start()
		p.Writer = <-streams
		return p
	})
}

// laterBody is the body of a response that begins with the first delivery.
type laterBody struct {
	transport *Transport
	req       *http.Request
	resp      chan *http.Response
	body      io.ReadCloser
}

func (b *laterBody) start() {
	b.resp = make(chan *http.Response, 1)
	go func() {
		defer close(b.resp)
		if resp, err := b.transport.RoundTrip(b.req); err == nil {
			b.resp <- resp
		}
	}()
}

func (b *laterBody) Read(p []byte) (int, error) {
	if b.body == nil {
		resp := <-b.resp
		if resp == nil {
			return 0, errors.New("no response")
		}
		b.body = resp.Body
	}
	return b.body.Read(p)
}

// TestBodyThatTimedOutIsIncomplete: the client must not mistake the bytes before the deadline for
// the whole body.
func TestBodyThatTimedOutIsIncomplete(t *testing.T) {
	transport := New(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c := http.NewResponseController(w)
		_ = c.Flush()
		_ = c.SetWriteDeadline(time.Now().Add(-time.Second))
		if _, err := w.Write(make([]byte, large)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Write: %v", err)
		}
	}), nil)
	t.Cleanup(transport.Close)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://x/", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if n, err := io.Copy(io.Discard, resp.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%d bytes, then %v", n, err)
	}
}
