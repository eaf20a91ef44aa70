package app

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/internal/bubble"
)

func TestPatience(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := &lazyTimeout{Context: t.Context(), limit: time.Second}
		time.Sleep(time.Minute) // nobody waits
		began := time.Now()
		<-p.Done()
		if took := time.Since(began); took != time.Second || !errors.Is(p.Err(), context.DeadlineExceeded) {
			t.Errorf("ended after %v: %v", took, p.Err())
		}
		p.end()

		ctx, cancel := context.WithCancel(t.Context())
		p = &lazyTimeout{Context: ctx, limit: time.Hour}
		cancel()
		<-p.Done()
		p.end()

		p = &lazyTimeout{Context: t.Context(), limit: time.Hour}
		p.end()
		if p.Err() != nil {
			t.Errorf("ended without a wait: %v", p.Err())
		}
	})
}
