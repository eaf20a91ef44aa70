package contain_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/internal/contain"
)

func TestRun(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r := prometheus.NewPedanticRegistry()
		p := contain.New(r, slog.New(slog.NewTextHandler(&log, nil)))
		same := contain.New(r, nil) // of another part of the process
		if err := p.Run("watch", func() {}); err != nil {
			t.Error(err)
		}
		for range 3 {
			err := p.Run("watch", func() { panic("secret of a tenant") })
			var contained *contain.Error
			if !errors.As(err, &contained) || contained.Value != "secret of a tenant" || strings.Contains(err.Error(), "secret") {
				t.Errorf("got %v", err)
			}
		}
		if n := strings.Count(log.String(), "secret of a tenant"); n != 1 || !strings.Contains(log.String(), "contain_test.go") {
			t.Errorf("logged %d times: %s", n, log.String())
		}
		time.Sleep(time.Minute)
		_ = p.Run("watch", func() { panic("again") })
		if !strings.Contains(log.String(), "again") {
			t.Error("not logged a minute later")
		}
		_ = same.Run("feed", func() { panic("other") })
		if err := testutil.GatherAndCompare(r, strings.NewReader(`
# HELP kubeweir_panics_total Contained panics, by place. Each ended one request, watch or background task, and is a bug.
# TYPE kubeweir_panics_total counter
kubeweir_panics_total{place="background"} 0
kubeweir_panics_total{place="body"} 0
kubeweir_panics_total{place="connection"} 0
kubeweir_panics_total{place="done"} 0
kubeweir_panics_total{place="feed"} 1
kubeweir_panics_total{place="handler"} 0
kubeweir_panics_total{place="stream"} 0
kubeweir_panics_total{place="upgrade"} 0
kubeweir_panics_total{place="watch"} 4
`)); err != nil {
			t.Error(err)
		}
	})
}

func TestGo(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for _, p := range []*contain.Panics{nil, contain.New(nil, slog.New(slog.DiscardHandler))} {
			var wg sync.WaitGroup
			p.Go(&wg, "background", func() { panic("bug") })
			p.Go(nil, "background", func() { panic("bug") })
			runs := 0
			p.Keep(&wg, "background", func() {
				if runs++; runs < 3 {
					panic("bug")
				}
			})
			wg.Wait()
			go func() {
				defer p.Contain("background")
				panic("bug")
			}()
			synctest.Wait()
			failed := errors.New("failed")
			if err := p.Func("background", func() error { return failed })(); !errors.Is(err, failed) {
				t.Error(err)
			}
			var contained *contain.Error
			if err := p.Func("background", func() error { panic("bug") })(); !errors.As(err, &contained) {
				t.Error(err)
			}
			if runs != 3 {
				t.Errorf("ran %d times", runs)
			}
		}
	})
}

// TestRunAllocations: containment adds no allocations to a delivery.
func TestRunAllocations(t *testing.T) {
	p := contain.New(nil, nil)
	n := 0
	if allocated := testing.AllocsPerRun(100, func() { _ = p.Run("watch", func() { n++ }) }); allocated != 0 {
		t.Errorf("%v allocations", allocated)
	}
}
