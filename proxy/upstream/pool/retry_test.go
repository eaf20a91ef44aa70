package pool

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// TestUnprocessed: the words by which libraries tell that a request was not processed are theirs.
func TestUnprocessed(t *testing.T) {
	near, far := net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, far) }()
	//lint:ignore SA1019 it is that code's words that count
	conn, err := (&http2.Transport{}).NewClientConn(near)
	if err != nil {
		t.Fatal(err)
	}
	_ = far.Close()
	for end := time.Now().Add(20 * time.Second); !conn.State().Closed; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the connection does not end")
		}
	}
	write := func() *http.Request {
		req, err := http.NewRequestWithContext(t.Context(), "POST", "https://gateway/", io.LimitReader(strings.NewReader("x"), 1))
		if err != nil {
			t.Fatal(err)
		}
		return req
	}
	if _, err := conn.RoundTrip(write()); err == nil || !Unprocessed(err) {
		t.Errorf("the first request on a connection that has ended: %v", err)
	}
	unusable := http.Transport{Protocols: new(http.Protocols)}
	unusable.Protocols.SetHTTP1(true)
	unusable.RegisterProtocol("https", roundTripperFunc(func(req *http.Request) (*http.Response, error) {
		_ = req.Body.Close()
		return nil, http.ErrSkipAltProtocol
	}))
	if _, err := unusable.RoundTrip(write()); err == nil || !Unprocessed(err) {
		t.Errorf("a request whose connection took no more: %v", err)
	}
}

type roundTripperFunc func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripperFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
