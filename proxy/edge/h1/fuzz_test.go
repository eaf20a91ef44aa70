package h1

import (
	"bufio"
	"bytes"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"

	"github.com/kubeweir/kubeweir/internal/edgetest"
)

// FuzzRequestHead reads a head as the server does and as net/http does: what both
// accept must mean the same to both, or a request could be smuggled past one of
// them.
func FuzzRequestHead(f *testing.F) {
	for _, seed := range []string{
		edgetest.ClientRequest,
		"GET / HTTP/1.0\r\n\r\n",
		"POST /a%20b?c=d HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc",
		"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"GET http://a:1/b HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\nfoo:bar\r\nfoo:\tbaz \r\nConnection: close, x\r\n\r\n",
		"GET / HTTP/1.1\nHost: x\n\n",
		"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\r\n",
		"\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET a:///b HTTP/1.1\r\nHost: x\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\nCookie: a=b\r\nCookie: c=d\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	c := connOf(f, nil)
	f.Fuzz(func(t *testing.T, data []byte) {
		br := bufio.NewReaderSize(bytes.NewReader(data), 64<<10)
		req := fasthttp.AcquireRequest()
		defer fasthttp.ReleaseRequest(req)
		if req.Header.Read(br) != nil {
			return
		}
		x := &exchange{c: c}
		if x.copyHead(&req.Header) != nil {
			return
		}
		for bytes.HasPrefix(data, []byte("\r\n")) || bytes.HasPrefix(data, []byte("\n")) {
			data = data[bytes.IndexByte(data, '\n')+1:] // net/http does not skip empty lines
		}
		theirs := bufio.NewReaderSize(bytes.NewReader(data), 64<<10)
		want, err := http.ReadRequest(theirs)
		if err != nil {
			return
		}
		compareRequests(t, x, req.Header.ContentLength(), want)
		if want.Body == http.NoBody || want.ContentLength > 0 {
			if ours, other := br.Buffered(), theirs.Buffered(); ours != other {
				t.Errorf("%d bytes behind the head, net/http leaves %d", ours, other)
			}
		}
	})
}

func compareRequests(t *testing.T, x *exchange, length int, want *http.Request) {
	t.Helper()
	r := &x.req
	if r.Method != want.Method || r.Host != want.Host || r.RawQuery != want.URL.RawQuery {
		t.Errorf("got %q %q %q, want %q %q %q", r.Method, r.Host, r.RawQuery, want.Method, want.Host, want.URL.RawQuery)
	}
	if strings.HasPrefix(want.RequestURI, "/") && r.Path != want.URL.Path {
		t.Errorf("path %q, want %q", r.Path, want.URL.Path)
	}
	// A request with two framings is the last one of its connection here; net/http drops one of the framings.
	if keep := x.keepAlive && !x.mustClose; keep == want.Close && (keep || length != -1) {
		t.Errorf("keep alive %v, want %v", keep, !want.Close)
	}
	wantLength := want.ContentLength
	if len(want.TransferEncoding) > 0 {
		wantLength = -1
	}
	if int64(max(length, 0)) != max(wantLength, 0) || (length == -1) != (wantLength == -1) {
		t.Errorf("length %d, want %d", length, wantLength)
	}
	got := map[string][]string{}
	for _, f := range r.Header {
		got[f.Name] = append(got[f.Name], f.Value)
	}
	for _, own := range []string{"Content-Length", "Transfer-Encoding", "Trailer", "Expect", "Pragma", "Cache-Control"} {
		want.Header.Del(own) // ReadRequest makes a Cache-Control of Pragma
		delete(got, own)
	}
	for name, values := range want.Header {
		if !slices.Equal(got[textproto.CanonicalMIMEHeaderKey(name)], values) {
			t.Errorf("%s: %q, want %q", name, got[name], values)
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("lines that net/http does not see: %q", got)
	}
}
