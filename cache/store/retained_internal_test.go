package store

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/watchmux"
)

// TestExpiredVersionsAreStillComparable: an old version is no longer served to clients, but the
// reflector can still look at it when it compares the source's history with its own.
func TestExpiredVersionsAreStillComparable(t *testing.T) {
	var contents atomic.Uint64
	s := New(api.JSON, Options{History: watchmux.Options{MaxAge: time.Hour, MaxBytes: 1 << 20, MaxEvents: 100}, SnapshotAge: time.Minute, SnapshotBytes: 1 << 20, Contents: &contents})
	s.Install(&List{Tree: NewTree(), RV: 1})
	schema := object.CustomSchema(nil)
	for rv := 2; rv < 5; rv++ {
		o, err := schema.Decode(api.JSON, fmt.Appendf(nil, `{"metadata":{"name":"pod-%d","resourceVersion":"%d"}}`, rv, rv))
		if err == nil {
			err = s.Apply(api.Added, o)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	if v, err := s.AppliedAt(3, now); err != nil || v.Len() != 2 { // which retains it
		t.Fatal(v, err)
	}
	if _, err := s.At(3, now); err != nil {
		t.Error(err)
	}
	s.DropUnused(now.Add(time.Hour))
	var expired *ExpiredError
	if _, err := s.At(3, now); !errors.As(err, &expired) || expired.Oldest != 4 {
		t.Errorf("got %v", err)
	}
	for range 2 {
		if v, err := s.AppliedAt(3, now); err != nil || v.Len() != 2 {
			t.Error(v, err)
		}
		if _, err := s.At(3, now); !errors.As(err, &expired) {
			t.Errorf("got %v", err)
		}
	}
}
