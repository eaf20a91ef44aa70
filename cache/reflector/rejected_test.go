package reflector_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
)

// TestRejectedCollectionStops checks that a collection that the source no longer permits is not
// served forever as a stale state, while a rejection of some seconds, as from a starting server, is
// survived.
func TestRejectedCollectionStops(t *testing.T) {
	for _, c := range []struct {
		name       string
		rejections int
		stops      bool
	}{{"for a moment", 7, false}, {"for good", 50, true}} {
		t.Run(c.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				res := cachetest.PodResource()
				source := cachetest.New(res)
				source.Create(cachetest.Pods, cachetest.Pod("default/a", ""))
				m := cachetest.NewManager(t, source, cache.Limits{})
				defer m.Close()
				collection := cachetest.Collection(t, m, res, api.JSON)
				rejection := apierrors.NewForbidden(cachetest.Pods.GroupResource(), "", errors.New("no"))
				source.Fail("version", slices.Repeat([]error{rejection}, c.rejections)...)
				source.Break(errors.New("the watch broke"))
				time.Sleep(3 * time.Minute)
				synctest.Wait()
				stopped := false
				select {
				case <-collection.Closed():
					stopped = true
				default:
				}
				if stopped != c.stops {
					t.Errorf("stopped: %v, want %v", stopped, c.stops)
				}
			})
		})
	}
}
