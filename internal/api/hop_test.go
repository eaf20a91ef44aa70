package api

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func headerOf(lines ...string) Header {
	var h Header
	for i := 0; i < len(lines); i += 2 {
		h.Add(lines[i], lines[i+1])
	}
	return h
}

func TestEndToEnd(t *testing.T) {
	for name, tt := range map[string]struct{ in, want []string }{
		"nothing to do": {[]string{"Accept", "a", "Accept", "b", "X-Custom", ""}, []string{"Accept", "a", "Accept", "b", "X-Custom", ""}},
		"of the connection": {[]string{
			"Connection", "keep-alive, X-One", "X-One", "1", "Connection", "x-two ,,Upgrade,\tx-THREE", "Keep-Alive", "timeout=5", "X-Two", "2", "X-Three", "3",
			"Upgrade", "h2c", "Http2-Settings", "x", "Te", "gzip", "Trailer", "X", "Transfer-Encoding", "chunked", "Proxy-Authorization", "secret",
			"Proxy-Connection", "close", "X-Four", "4",
		}, []string{"X-Four", "4"}},
		"named before":  {[]string{"X-One", "1", "X-One", "1", "Connection", "x-one"}, nil},
		"trailers":      {[]string{"Te", "gzip", "Te", "deflate, Trailers", "A", "b"}, []string{"A", "b", "Te", "trailers"}},
		"named itself":  {[]string{"Connection", "Connection, te", "Te", "trailers"}, []string{"Te", "trailers"}},
		"odd separator": {[]string{"Connection", "A B;C", "A", "1", "B", "2", "C", "3"}, []string{"A", "1", "B", "2", "C", "3"}},
	} {
		h := headerOf(tt.in...)
		h.EndToEnd()
		if diff := cmp.Diff(headerOf(tt.want...), h, cmp.Transformer("empty", func(h Header) []HeaderField { return append([]HeaderField{}, h...) })); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestEndToEndIsNotQuadratic: a header of 64 KiB holds some 10,000 lines and 10,000 names.
// Comparing each with each takes more than a second.
func TestEndToEndIsNotQuadratic(t *testing.T) {
	var h Header
	var names []string
	for i := range 1 << 17 {
		names = append(names, "N"+strconv.Itoa(i))
		h.Add("L"+strconv.Itoa(i), "")
	}
	h.Add("Connection", strings.Join(names, ","))
	h.EndToEnd() // 17 billion comparisons would exceed the test's timeout
	if len(h) != 1<<17 {
		t.Errorf("%d lines are left", len(h))
	}
}

func TestEndToEndAllocatesNothingForOrdinaryHeaders(t *testing.T) {
	h := headerOf("Accept", "application/json", "User-Agent", "kubectl", "Authorization", "Bearer t")
	if n := testing.AllocsPerRun(100, h.EndToEnd); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
