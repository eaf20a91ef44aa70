package bench

import (
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// servingHTTP2 starts an HTTP/2 server of the standard library.
func servingHTTP2(t *testing.T, h http.HandlerFunc) *server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	return &server{name: "test", addr: s.Listener.Addr().String(), token: "secret", tls: &tls.Config{RootCAs: pool, ServerName: "example.com"}}
}

// TestHTTP2Caller checks that two concurrent responses of any size are not mixed up and that bodies
// larger than a window arrive.
func TestHTTP2Caller(t *testing.T) {
	const large = 3 << 20
	s := servingHTTP2(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" || r.Proto != "HTTP/2.0" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("ETag", `"e"`)
		if r.URL.Path == "/large" {
			_, _ = w.Write(make([]byte, large))
			return
		}
		_, _ = io.WriteString(w, r.Header.Get("Accept-Encoding"))
	})
	c, err := dialOver(t.Context(), HTTP2, s)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	for range 3 {
		for _, path := range []string{"/large", "/small"} {
			if err := c.send(requestSpec{path: path}); err != nil {
				t.Fatal(err)
			}
		}
		sizes := int64(0)
		for range 2 {
			r, err := received(c, requestSpec{}, 200)
			if err != nil || r.etag != `"e"` || r.took <= 0 {
				t.Fatalf("%+v, %v", r, err)
			}
			if r.bytes < 100 && string(r.head) != "identity" {
				t.Errorf("head %q", r.head)
			}
			sizes += r.bytes
		}
		if sizes != large+int64(len("identity")) {
			t.Errorf("%d bytes", sizes)
		}
	}
	if err := c.send(requestSpec{path: "/large"}); err != nil {
		t.Fatal(err)
	}
	if _, err := received(c, requestSpec{path: "/large"}, 204); err == nil || !strings.Contains(err.Error(), "/large: status 200") {
		t.Errorf("another status: %v", err)
	}
}

// TestWatchListEnds checks that a watch counts as complete after its initial events, compressed or
// not.
func TestWatchListEnds(t *testing.T) {
	s := servingHTTP2(t, func(w http.ResponseWriter, r *http.Request) {
		out, flush := io.Writer(w), func() {}
		if r.Header.Get("Accept-Encoding") == "gzip" {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			out, flush = z, func() { _ = z.Flush() }
		}
		for i := range 2000 {
			_, _ = fmt.Fprintf(out, "{\"type\":\"ADDED\",\"object\":%d}\n", i)
		}
		if r.URL.Path != "/endless" {
			_, _ = fmt.Fprintf(out, "{\"type\":\"BOOKMARK\",\"object\":%q}\n", endMark)
			flush()
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	})
	for _, gzipped := range []bool{false, true} {
		for _, p := range []Protocol{HTTP1, HTTP2} {
			t.Run(fmt.Sprintf("%s gzip %v", p, gzipped), func(t *testing.T) {
				var c caller = &listWatcher{ctx: t.Context(), server: s}
				if p == HTTP2 {
					var err error
					if c, err = dialOver(t.Context(), p, s); err != nil {
						t.Fatal(err)
					}
				}
				defer c.close()
				for range 3 {
					r, err := once(repeat(c, requestSpec{path: "/", gzip: gzipped, watchList: true}))
					if err != nil || (r.encoding == "gzip") != gzipped || r.bytes == 0 {
						t.Fatalf("%+v, %v", r, err)
					}
				}
				_, err := once(repeat(c, requestSpec{path: "/endless", gzip: gzipped, watchList: true}))
				if err == nil || !strings.Contains(err.Error(), "before its initial events") {
					t.Errorf("a watch that ends too early: %v", err)
				}
			})
		}
	}
}

// TestEndFinder checks that the mark is found wherever writes split it.
func TestEndFinder(t *testing.T) {
	text := []byte("abc" + endMark + "defghi")
	for first := range text {
		for second := first; second < len(text); second++ {
			found := 0
			f := newEndFinder("", func() { found++ })
			for _, p := range [][]byte{text[:first], text[first:second], text[second:]} {
				_, _ = f.Write(p)
			}
			if found != 1 {
				t.Errorf("cut at %d and %d: found %d times", first, second, found)
			}
		}
	}
	f := newEndFinder("", func() { t.Error("found although the mark is incomplete") })
	for _, p := range []string{endMark[:10], endMark[11:], strings.Repeat("x", 100), endMark[1:]} {
		_, _ = f.Write([]byte(p))
	}
}

// TestFloorFrames checks that the frames hold the whole body and only the last one ends the stream.
func TestFloorFrames(t *testing.T) {
	for _, size := range []int{0, 1, frameBytes, frameBytes + 1, 5*frameBytes - 1} {
		body := bytes.Repeat([]byte("x"), size)
		frames := dataFrames(body)
		var back []byte
		ends := 0
		for len(frames) > 0 {
			n := int(frames[0])<<16 | int(frames[1])<<8 | int(frames[2])
			ends += int(frames[4])
			back = append(back, frames[frameHead:frameHead+n]...)
			frames = frames[frameHead+n:]
		}
		if !bytes.Equal(back, body) || ends != 1 {
			t.Errorf("%d bytes: %d back, %d ends", size, len(back), ends)
		}
	}
}
