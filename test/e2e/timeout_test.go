package e2e

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// TestShortTimeouts: a read whose timeout is over before it can be answered gets kube-apiserver's 504, even if the cache
// could answer it.
func TestShortTimeouts(t *testing.T) {
	ctx := deadline(t, 5*time.Minute)
	g := startGateway(t)
	const list, object, anyVersion = "/api/v1/namespaces?timeout=1ns", "/api/v1/namespaces/default?timeout=1ns", "&resourceVersion=0"
	through(t, g, as(realkube.Admin)).get(ctx, t, "/api/v1/namespaces?resourceVersion=0", typeJSON) // fills the cache
	for _, path := range []string{list, list + anyVersion, object, object + anyVersion} {
		var answers []answer
		for _, c := range []*client{direct(t, as(realkube.Admin)), through(t, g, as(realkube.Admin))} {
			// kube-apiserver resets the stream if it has begun to answer, which the gateway reports, and may be faster
			// than its own timer.
			eventually(ctx, t, patience, func() error {
				a, err := c.send(ctx, request{path: path, accept: typeJSON})
				if err == nil && a.status != http.StatusGatewayTimeout {
					err = errors.New(a.String())
				}
				if err == nil {
					answers = append(answers, a)
				}
				return err
			})
		}
		want, got := answers[0], answers[1]
		if got.String() != want.String() || got.header.Get("Content-Type") != want.header.Get("Content-Type") {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}
