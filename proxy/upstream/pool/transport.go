package pool

import "net/http"

// Transport is what requests of one style go through.
type Transport struct {
	*http.Transport
	opener   *opener // nil for HTTP/1.1
	maxSends int
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if t.opener == nil {
		return t.send(req)
	}
	req, done, err := t.opener.enter(req)
	if err != nil {
		return nil, err
	}
	defer done()
	return t.send(req)
}
