package e2e

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// TestShortTimeouts checks that a read whose timeout expires immediately gets the same 504 as from
// kube-apiserver, even if the cache could serve it.
func TestShortTimeouts(t *testing.T) {
	ctx := deadline(t, 5*time.Minute)
	g := startGateway(t)
	const list, object, anyVersion = "/api/v1/namespaces?timeout=1ns", "/api/v1/namespaces/default?timeout=1ns", "&resourceVersion=0"
	through(t, g, as(realkube.Admin)).get(ctx, t, "/api/v1/namespaces?resourceVersion=0", typeJSON) // fill the cache
	for _, path := range []string{list, list + anyVersion, object, object + anyVersion} {
		var responses []response
		for _, c := range []*client{direct(t, as(realkube.Admin)), through(t, g, as(realkube.Admin))} {
			// kube-apiserver resets the stream if its response has started. The gateway reports that, and it
			// may come before the gateway's own timer.
			eventually(ctx, t, waitTimeout, func() error {
				a, err := c.send(ctx, request{path: path, accept: typeJSON})
				if err == nil && a.status != http.StatusGatewayTimeout {
					err = errors.New(a.String())
				}
				if err == nil {
					responses = append(responses, a)
				}
				return err
			})
		}
		want, got := responses[0], responses[1]
		if got.String() != want.String() || got.header.Get("Content-Type") != want.header.Get("Content-Type") {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}
