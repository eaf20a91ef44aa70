package watch_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/internal/reason"
)

// slowClient lets one write through for each send on passes.
type slowClient struct {
	watchClient
	passes chan struct{}
}

func (c *slowClient) WriteFrames(frames [][]byte) error {
	<-c.passes
	return c.watchClient.WriteFrames(frames)
}

// TestRevocationStopsSlowReader checks that a slow reader receives nothing beyond the current write
// after its permission is revoked, during the initial events or later.
func TestRevocationStopsSlowReader(t *testing.T) {
	for name, coding := range map[string]api.Compression{"as they are": api.Identity, "compressed": api.Gzip, "later events": api.Identity} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				b := newWatchBench(t, cache.Limits{})
				client := &slowClient{passes: make(chan struct{})}
				fill := func() {
					for i := range 1200 {
						var labels []string
						for l := range 80 {
							labels = append(labels, fmt.Sprintf("l%d=%016x%016x%016x", l, rand.Uint64(), rand.Uint64(), rand.Uint64()))
						}
						b.source.Create(cachetest.Pods, bigPod(i, labels...))
					}
					synctest.Wait()
				}
				if name != "later events" {
					fill()
				}
				w, h := b.openCompressed("?"+initial, api.Representation{}, coding, client)
				if h.Has("Content-Encoding") != (coding == api.Gzip) {
					t.Fatal(h)
				}
				synctest.Wait()
				if name == "later events" {
					fill()
				}
				client.passes <- struct{}{}
				synctest.Wait()
				w.end(reason.WatchDraining) // which gives it time
				w.end(reason.PermissionRevoked)
				close(client.passes)
				synctest.Wait()
				// One before and one in progress, and the end of a compressed body.
				if want := 2 + int(coding); client.writes != want || !client.closed {
					t.Errorf("%d writes, want %d; closed %v", client.writes, want, client.closed)
				}
				w.stop()
				if len(w.ended) != 1 || w.ended[0] != reason.PermissionRevoked {
					t.Error(w.ended)
				}
			})
		})
	}
}
