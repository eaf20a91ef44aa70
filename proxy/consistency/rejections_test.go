package consistency

import (
	"strconv"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/internal/bubble"
)

func TestRejectionsAreBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var r Rejections
		what := func(i int) Rejected {
			return Rejected{"get", cachetest.Pods.GroupResource(), strconv.Itoa(i)}
		}
		for i := range 3 * maxRecent {
			r.Add(what(i))
		}
		if len(r.recent.until) != maxRecent {
			t.Errorf("%d refusals", len(r.recent.until))
		}
		time.Sleep(rejectionTTL)
		if r.Add(what(-1)); len(r.recent.until) != 1 || !r.Has(what(-1)) {
			t.Errorf("%d Rejections after a while", len(r.recent.until))
		}
	})
}
