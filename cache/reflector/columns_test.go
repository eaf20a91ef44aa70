package reflector_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/form/table"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
)

// columnSource is a source that reports its columns after some failures.
type columnSource struct {
	*cachetest.Source
	columns   string
	failing   atomic.Int64 // how many times it fails first
	requested atomic.Int64
}

func (s *columnSource) Columns(context.Context, *source.Resource) ([]byte, error) {
	s.requested.Add(1)
	if s.failing.Add(-1) >= 0 {
		return nil, errors.New("not now")
	}
	return []byte(s.columns), nil
}

// TestServerColumnsAreLearned checks that a collection in JSON starts once it is known which Tables
// a server of another release shows, and that this is requested again from another server.
func TestServerColumnsAreLearned(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		pods := cachetest.PodResource()
		printer := table.NewFollowing(table.NewDefaultPrinter(), "1.36.3")
		pods.Printer = printer
		s := &columnSource{Source: cachetest.New(pods), columns: `[{"name":"Else"}]`}
		s.SetServer(`{"gitVersion":"v1.30.14"}`)
		s.failing.Store(1)
		manager := cachetest.NewManager(t, s, cache.Limits{})
		defer manager.Close()
		for _, enc := range []api.Encoding{api.JSON, api.Protobuf} {
			cachetest.Collection(t, manager, pods, enc)
		}
		if n := s.requested.Load(); n != 2 || !printer.Traits().NoTables {
			t.Errorf("%d requests, %+v", n, printer.Traits())
		}
		s.SetServer(`{"gitVersion":"v1.36.0"}`)
		s.Break(nil)
		time.Sleep(10 * time.Second)
		if n := s.requested.Load(); n != 2 || printer.Traits().NoTables {
			t.Errorf("after the upgrade: %d requests, %+v", n, printer.Traits())
		}
	})
}
