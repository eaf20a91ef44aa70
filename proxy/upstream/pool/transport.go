package pool

import "net/http"

// Transport is what requests of one style go through.
type Transport struct {
	*http.Transport
	http1  *http1Pool // for the requests that it accepts, nil if there is none
	opener *opener    // nil for HTTP/1.1
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if t.http1 != nil && t.http1.accepts(req) {
		return t.http1.RoundTrip(req)
	}
	if t.opener == nil {
		return t.Transport.RoundTrip(req)
	}
	req, done, err := t.opener.enter(req)
	if err != nil {
		return nil, err
	}
	defer done()
	return t.Transport.RoundTrip(req)
}

// CloseIdleConnections closes the connections that are not in use.
func (t *Transport) CloseIdleConnections() {
	t.Transport.CloseIdleConnections()
	if t.http1 != nil {
		t.http1.CloseIdleConnections()
	}
}
