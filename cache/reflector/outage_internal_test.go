package reflector

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/bubble"
)

// heardSource reports the last contact that the test sets.
type heardSource struct {
	source.Source
	last func() time.Time
}

func (s heardSource) LastContact() time.Time { return s.last() }

// TestTimeoutExtendsWhileBytesArrive checks that a small request times out, but not while bytes
// arrive, and not forever then.
func TestTimeoutExtendsWhileBytesArrive(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for _, one := range []struct {
			name        string
			timeout     time.Duration
			bytes       time.Duration // for how long they arrive
			least, most time.Duration
		}{
			{"none come", probeTimeout, 0, probeTimeout, probeTimeout},
			{"they come for a while", probeTimeout, 7 * time.Second, 9 * time.Second, 11 * time.Second},
			{"they come for ever", probeTimeout, time.Hour, 20 * time.Second, 20 * time.Second},
			{"they come for ever, a longer call", source.SmallCallTimeout, time.Hour, time.Minute, time.Minute},
		} {
			began := time.Now()
			ctx, cancel := source.WithTimeout(t.Context(), heardSource{last: func() time.Time {
				if now := time.Now(); now.Before(began.Add(one.bytes)) {
					return now
				}
				return began.Add(one.bytes)
			}}, one.timeout)
			<-ctx.Done()
			if took := time.Since(began); took < one.least || took > one.most || !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
				t.Errorf("%s: canceled after %s: %v", one.name, took, context.Cause(ctx))
			}
			cancel()
		}
	})
}
