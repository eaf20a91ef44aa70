package bootstrap

import (
	"context"
	"testing"
	"time"
)

// BenchmarkPopulated is what a start costs when everything is there already, without
// the calls' own cost.
func BenchmarkPopulated(b *testing.B) {
	cfg := config(newClient())
	defer cfg.Informers.Shutdown()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	wait, err := Run(ctx, cfg)
	if err != nil {
		b.Fatal(err)
	}
	defer wait()
	defer cancel()
	boot := &bootstrapper{cfg}
	// The informers have to have seen what was written.
	for known := cfg.Informers.Rbac().V1().ClusterRoleBindings().Lister(); ; time.Sleep(time.Millisecond) {
		if _, err := known.Get("system:volume-scheduler"); err == nil {
			break
		}
	}
	for b.Loop() {
		if err := boot.write(ctx); err != nil {
			b.Fatal(err)
		}
	}
}
