package health

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/internal/bubble"
)

// delayedBody has one byte for each delay, which the read of it takes.
type delayedBody struct {
	ctx    context.Context
	delays []time.Duration
}

func (b *delayedBody) Read(p []byte) (int, error) {
	if len(b.delays) == 0 {
		return 0, io.EOF
	}
	timer := time.NewTimer(b.delays[0])
	defer timer.Stop()
	b.delays = b.delays[1:]
	select {
	case <-timer.C:
		p[0] = 'x'
		return 1, nil
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	}
}

func (*delayedBody) Close() error { return nil }

func TestIdleReader(t *testing.T) {
	const limit = 10 * time.Second
	for name, tt := range map[string]struct {
		limit time.Duration
		// pause is what the reader takes between two reads.
		pause  time.Duration
		delays []time.Duration
		// alive is for how long the connection gives signs of life.
		alive time.Duration
		// stalled is when the body is given up; 0: it is not.
		stalled time.Duration
	}{
		"steady":                  {limit, 0, []time.Duration{9 * time.Second, 9 * time.Second, 9 * time.Second}, 0, 0},
		"stands still":            {limit, 0, []time.Duration{9 * time.Second, 11 * time.Second}, 0, 19 * time.Second},
		"a slow reader":           {limit, time.Hour, []time.Duration{time.Second, time.Second, time.Second}, 0, 0},
		"stands still afterwards": {limit, time.Minute, []time.Duration{time.Second, time.Hour}, 0, time.Minute + 11*time.Second},
		"alive":                   {limit, 0, []time.Duration{time.Hour}, time.Hour, 0},
		"alive for a while":       {limit, 0, []time.Duration{time.Hour}, time.Minute, 70 * time.Second},
		"no limit":                {0, 0, []time.Duration{24 * time.Hour}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				g := NewIdleReader(ctx, cancel, &delayedBody{ctx, tt.delays}, tt.limit)
				began := time.Now()
				if tt.alive > 0 {
					g.Alive = func() time.Time { return began.Add(min(tt.alive, time.Since(began))) }
				}
				var err error
				for err == nil {
					if _, err = g.Read(make([]byte, 1)); err == nil {
						time.Sleep(tt.pause)
					}
				}
				took := time.Since(began)
				if tt.stalled == 0 && !errors.Is(err, io.EOF) || tt.stalled > 0 && (!errors.Is(err, ErrStalled) || took != tt.stalled) {
					t.Errorf("ended after %v with %v, want %v", took, err, tt.stalled)
				}
			})
		})
	}
}
