package upstream

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
)

// BenchmarkForward compares a forwarded request with the same over the bare
// transport: the difference is what forwarding adds.
func BenchmarkForward(b *testing.B) {
	object := bytes.Repeat([]byte("x"), 6<<10)
	for name, options := range map[string][]serverOption{"HTTP2": nil, "HTTP1": {http1Only}} {
		s := newServer(b, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = w.Write(object)
		}, options...)
		c := s.client(b)
		for _, method := range []string{"GET", "POST"} {
			b.Run(name+"/"+method+"/transport", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					req, err := http.NewRequest(method, s.URL+"/api/v1/namespaces/n/pods/p", nil)
					if err != nil {
						b.Fatal(err)
					}
					if method == "POST" {
						req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(object)), int64(len(object))
					}
					resp, err := c.anonymous.shared.RoundTrip(req)
					if err != nil {
						b.Fatal(err)
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			})
			b.Run(name+"/"+method+"/forward", func(b *testing.B) {
				b.ReportAllocs()
				ctx := testContext(b)
				for b.Loop() {
					r := request(method, "/api/v1/namespaces/n/pods/p", "Accept", "application/json", "User-Agent", "bench", "Authorization", "Bearer t")
					if method == "POST" {
						r.Body, r.ContentLength = bytes.NewReader(object), int64(len(object))
					}
					resp := c.Forward(ctx, r, Credentials{})
					if resp.Status != 200 || len(resp.Body) != len(object) {
						b.Fatal(resp.Status)
					}
				}
			})
		}
	}
}

// BenchmarkList reads lists of 2,000 pods of some 3 KB over TLS and HTTP/2: the
// transport and the fake upstream cost most of it.
func BenchmarkList(b *testing.B) {
	list := &corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
	for i := range 2000 {
		p := pod(fmt.Sprint("p", i), "1")
		p.TypeMeta = metav1.TypeMeta{}
		for j := range 40 {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: fmt.Sprint("c", j), Image: "registry/image:v1"})
		}
		list.Items = append(list.Items, *p)
	}
	for _, enc := range []api.Encoding{api.JSON, api.Protobuf} {
		body := encode(b, enc, list)
		for _, drop := range []bool{true, false} {
			b.Run(fmt.Sprintf("%s/parsed=%v", enc, !drop), func(b *testing.B) {
				s := newServer(b, func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(body) })
				c := s.client(b)
				src := c.Source()
				b.SetBytes(int64(len(body)))
				b.ReportAllocs()
				for b.Loop() {
					if drop {
						a, err := src.get(b.Context(), pods(), &call{purpose: forList, accept: enc.MediaType(), path: collectionPath(pods(), "")})
						if err != nil {
							b.Fatal(err)
						}
						_, _ = io.Copy(io.Discard, a.body)
						_ = a.Close()
						continue
					}
					if _, err := src.List(b.Context(), pods(), enc, source.ListOptions{}, func([]byte) error { return nil }); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
