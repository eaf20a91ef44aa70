package groups

import (
	"context"
	"maps"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/controlplane"
)

// TestDefaultResources: kube-apiserver serves the same by default.
func TestDefaultResources(t *testing.T) {
	want := controlplane.DefaultAPIResourceConfigSource().GroupVersionConfigs
	maps.DeleteFunc(want, func(_ schema.GroupVersion, enabled bool) bool { return !enabled })
	if got := DefaultResources().GroupVersionConfigs; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestRepair: it returns when each loop has succeeded once, and ends them with ctx.
func TestRepair(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{}, 2)
	loop := func(first func(), stop chan struct{}) {
		first()
		<-stop
		ended <- struct{}{}
	}
	if err := repair(ctx, loop, loop); err != nil {
		t.Fatal(err)
	}
	cancel()
	for range cap(ended) {
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			t.Fatal("a loop goes on")
		}
	}
	hangs := func(_ func(), stop chan struct{}) { <-stop }
	if err := repair(ctx, hangs); err != nil {
		t.Errorf("a server that is closed while it starts: %v", err)
	}
}
