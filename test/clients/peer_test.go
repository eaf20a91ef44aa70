package clients

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
)

// A peer is an HTTP/2 client with one connection to the gateway.
type peer interface {
	// start begins a request and passes its results to the exchange.
	start(x *exchange, r request)
}

// A request is a request for a peer to send. The field names are those of the scripts.
type request struct {
	ID      int               `json:"id"`
	Method  string            `json:"method"`
	Path    string            `json:"path"`
	Header  map[string]string `json:"header"`
	Body    string            `json:"body,omitempty"`
	Trailer map[string]string `json:"trailer,omitempty"`
	// Hold delays reading the body until resume.
	Hold bool `json:"hold,omitempty"`
	// Protocols are the subprotocols of a WebSocket. If set, a page opens a WebSocket instead of
	// sending a request.
	Protocols []string `json:"protocols,omitempty"`
}

// head is the beginning of a response.
type head struct {
	Status        int
	Informational []int  // preceding 1xx statuses, such as 100
	Protocol      string // "h2"
}

// An exchange is a request and its response so far.
type exchange struct {
	name string

	resume func() // starts reading the body if Hold was set; called once
	cancel func() // cancels the request

	mu      sync.Mutex
	changed chan struct{} // closed and replaced on every change
	begun   bool
	head    head
	body    bytes.Buffer
	ended   bool
	err     error // why it ended; nil for a complete response
}

func newExchange(r request) *exchange {
	return &exchange{name: r.Method + " " + r.Path, changed: make(chan struct{})}
}

func (x *exchange) update(change func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	change()
	close(x.changed)
	x.changed = make(chan struct{})
}

func (x *exchange) begin(h head)      { x.update(func() { x.begun, x.head = true, h }) }
func (x *exchange) data(b string)     { x.update(func() { x.body.WriteString(b) }) }
func (x *exchange) spoke(name string) { x.update(func() { x.head.Protocol = name }) }

// end ends the exchange. Only the first call has an effect.
func (x *exchange) end(err error) {
	x.update(func() {
		if !x.ended {
			x.ended, x.err = true, err
		}
	})
}

// read reads a body until its end.
func (x *exchange) read(body io.Reader) {
	for buf := make([]byte, 64<<10); ; {
		n, err := body.Read(buf)
		x.data(string(buf[:n]))
		if errors.Is(err, io.EOF) {
			err = nil
		} else if err == nil {
			continue
		}
		x.end(err)
		return
	}
}

// until waits for a state of the exchange. It fails if the exchange ends before.
func (x *exchange) until(ctx context.Context, t *testing.T, what string, is func() bool) {
	t.Helper()
	for {
		x.mu.Lock()
		done, ended, changed := is(), x.ended, x.changed
		state := fmt.Sprintf("%+v, %d bytes, ended %t: %v; %.200s", x.head, x.body.Len(), x.ended, x.err, x.body.String())
		x.mu.Unlock()
		if done {
			return
		}
		if ended {
			t.Fatalf("%s: ended before %s: %s", x.name, what, state)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("%s: waiting for %s: %v: %s", x.name, what, context.Cause(ctx), state)
		}
	}
}

// awaitHead waits until the response begins and checks its status.
func (x *exchange) awaitHead(ctx context.Context, t *testing.T, status int) {
	t.Helper()
	x.until(ctx, t, "its head", func() bool { return x.begun })
	if x.head.Status != status {
		t.Fatalf("%s: %d, want %d: %.300s", x.name, x.head.Status, status, x.body.String())
	}
}

// compact removes spaces and line breaks: the server indents JSON for curl and browsers.
func compact(body string) string { return strings.NewReplacer(" ", "", "\n", "").Replace(body) }

// awaitText waits until the body contains a text.
func (x *exchange) awaitText(ctx context.Context, t *testing.T, text string) {
	t.Helper()
	x.until(ctx, t, text, func() bool { return strings.Contains(compact(x.body.String()), text) })
}

// whole waits for the end of a response, which must be complete, and returns its body.
func (x *exchange) whole(ctx context.Context, t *testing.T, status int) string {
	t.Helper()
	x.until(ctx, t, "its end", func() bool { return x.ended })
	if x.err != nil {
		t.Fatalf("%s: after %d bytes: %v", x.name, x.body.Len(), x.err)
	}
	x.awaitHead(ctx, t, status)
	if x.head.Protocol != "h2" {
		t.Fatalf("%s: used %q, not HTTP/2", x.name, x.head.Protocol)
	}
	return x.body.String()
}

// A driver numbers a peer's requests and sends them with a user's token.
type driver struct {
	peer  peer
	token string
	next  int
}

// send begins a request.
func (d *driver) send(r request) *exchange {
	d.next++
	r.ID = d.next
	header := map[string]string{"Authorization": "Bearer " + d.token}
	if r.Body != "" {
		header["Content-Type"] = "application/json"
	}
	for k, v := range r.Header {
		header[k] = v
	}
	r.Header = header
	x := newExchange(r)
	d.peer.start(x, r)
	return x
}

func (d *driver) get(path string) *exchange { return d.send(request{Method: "GET", Path: path}) }
