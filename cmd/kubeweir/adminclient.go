package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// adminClient returns a client for an admin listener. It uses no proxy: the listener is on this machine,
// or reached directly.
func adminClient() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: (&net.Dialer{Timeout: 5 * time.Second}).DialContext, MaxIdleConnsPerHost: 1}}
}

// maxDocument is the maximum size of a response, in bytes.
const maxDocument = 64 << 20

var errInterrupted = errors.New("interrupted")

// roundTrip sends a request to an admin listener and reads the response.
func roundTrip(client *http.Client, req *http.Request) (*http.Response, []byte, error) {
	at := req.URL.Scheme + "://" + req.URL.Host
	resp, err := client.Do(req)
	switch {
	case req.Context().Err() != nil:
		return nil, nil, errInterrupted
	case err != nil:
		return nil, nil, fmt.Errorf("no gateway responds at %s; check --admin and the --admin-listen of the gateway: %w", at, errors.Unwrap(err))
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument))
	if err != nil {
		return nil, nil, fmt.Errorf("reading the response of the gateway at %s: %w", at, err)
	}
	return resp, body, nil
}
