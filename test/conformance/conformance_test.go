package conformance

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// startTime covers building etcd and kube-apiserver, the first time.
const startTime = 25 * time.Minute

func startOracle(t *testing.T) *Oracle {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTime)
	defer cancel()
	o, err := StartOracle(ctx, realkube.Options{Dir: filepath.Join(t.TempDir(), "oracle")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Close)
	if err := o.Age(ctx); err != nil {
		t.Fatal(err)
	}
	return o
}

func target(t *testing.T, make func(http2 bool) (*Target, error), http2 bool) *Target {
	t.Helper()
	out, err := make(http2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(out.Close)
	return out
}

// TestOracle compares kube-apiserver with itself, over HTTP/1.1 and HTTP/2: the cases must be what they say they are,
// and steady.
func TestOracle(t *testing.T) {
	o := startOracle(t)
	ctx := t.Context()
	if err := o.Seed(ctx); err != nil {
		t.Fatal(err)
	}
	cases, err := o.Reads(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d read cases", len(cases))
	oracle, itself := target(t, o.Target, false), target(t, o.Target, true)
	RunReads(ctx, t, o.Env, oracle, itself, cases)
	RunLive(ctx, t, o.Env, oracle, itself, "live", LiveCases())
	RunScenarios(ctx, t, o.Env, oracle, itself, "written", Scenarios())
}
