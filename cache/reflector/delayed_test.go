package reflector_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/reflector"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/bubble"
)

// farServer is a source whose version takes a while to arrive.
type farServer struct {
	*scriptedSource
	takes time.Duration
}

func (s *farServer) CurrentVersion(context.Context, *source.Resource) (uint64, error) {
	time.Sleep(s.takes)
	return s.version, nil
}

// TestResumedWatchCatchesUpToVersionBefore checks that a resumed watch has caught up once it
// reaches the version that the source had before, unless that was read long before.
func TestResumedWatchCatchesUpToVersionBefore(t *testing.T) {
	for takes, want := range map[time.Duration]reflector.Phase{
		999 * time.Millisecond: reflector.Synced,
		5 * time.Second:        reflector.Stale,
	} {
		t.Run(takes.String(), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				s := &farServer{takes: takes, scriptedSource: &scriptedSource{version: 9, streams: []stream{
					{events: "ADDED a/1@5 END @8", end: errors.New("unexpected EOF")},
					{events: "ADDED a/2@9"},
				}}}
				m := cachetest.NewManager(t, s, cache.Limits{})
				defer m.Close()
				c := cachetest.PodCollection(t, m)
				for c.RV() != 9 {
					time.Sleep(time.Millisecond)
				}
				synctest.Wait()
				if got := c.State().Phase; got != want {
					t.Errorf("%v, want %v", got, want)
				}
				time.Sleep(time.Second)
				if got := c.State().Phase; got != reflector.Synced {
					t.Errorf("%v after a second", got)
				}
			})
		})
	}
}
