package upstream

import (
	"bytes"
	"fmt"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/kubeweir/kubeweir/proxy/upstream/pool"
)

// TestFramingOfHTTP2Responses: what an HTTP/2 server says of connections and lengths does not reach
// clients, to whom over HTTP/1.1 it would say where the answer ends (golang.org/issue/81115).
func TestFramingOfHTTP2Responses(t *testing.T) {
	for _, c := range []struct {
		fields []string
		whole  bool // the body arrives; else clients are told that the answer broke off
	}{
		{[]string{"content-length", "5"}, true},
		{[]string{"content-length", "5", "content-length", "5"}, true},
		{[]string{"content-length", "5", "content-length", "50"}, true},
		{[]string{"content-length", "0", "content-length", "5"}, true},
		{[]string{"content-length", "five"}, true},
		{[]string{"content-length", "4"}, false},
		{[]string{"content-length", "6"}, false},
		{[]string{"transfer-encoding", "chunked"}, true},
		{[]string{"transfer-encoding", "chunked", "content-length", "5"}, true},
		{[]string{"connection", "close, x-other", "x-other", "1"}, true},
		{[]string{"keep-alive", "timeout=5", "proxy-connection", "close", "upgrade", "h2c"}, true},
	} {
		t.Run(fmt.Sprint(c.fields), func(t *testing.T) {
			s := newOneOf(t, "other")
			raw := newRawServer(t, s.server, func(f *http2.Framer, stream uint32, _ int64) bool {
				var head bytes.Buffer
				encoder := hpack.NewEncoder(&head)
				_ = encoder.WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
				for i := 0; i < len(c.fields); i += 2 {
					_ = encoder.WriteField(hpack.HeaderField{Name: c.fields[i], Value: c.fields[i+1]})
				}
				_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: head.Bytes(), EndHeaders: true})
				return f.WriteData(stream, true, []byte("hello")) == nil
			})
			client := s.client(t, func(o *Options) { o.Config.Host = raw.url() })
			client.direct.Store(pool.MaxHTTP1) // what is more goes over HTTP/2
			resp := client.Forward(testContext(t), request("GET", "/api/v1/namespaces/x/pods/y"), Credentials{As: AsGateway})
			for _, name := range []string{"Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "Proxy-Connection", "Upgrade"} {
				if resp.Header.Has(name) {
					t.Errorf("%s: %q", name, resp.Header.Values(name))
				}
			}
			if c.whole && resp.Length != 5 && resp.Length != -1 {
				t.Errorf("the length is announced as %d", resp.Length)
			}
			if body, err := tryFinish(resp); (err == nil && body == "hello") != c.whole {
				t.Errorf("%d %q, %v", resp.Status, body, err)
			}
		})
	}
}
