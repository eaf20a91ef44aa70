package groups

import (
	"context"
	"maps"
	"strings"
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

func TestResources(t *testing.T) {
	alpha := schema.GroupVersion{Group: "internal.apiserver.k8s.io", Version: "v1alpha1"}
	beta := schema.GroupVersion{Group: "storage.k8s.io", Version: "v1beta1"}
	batch := schema.GroupVersion{Group: "batch", Version: "v1"}
	for _, c := range []struct {
		config             string
		alpha, beta, batch bool
	}{
		{"", false, false, true},
		{"api/all=true", true, true, true},
		{"api/all=true,api/alpha=false,batch/v1=false", false, true, false},
		{"api/beta=true", false, true, true},
		{"v1=true,api/ga=true,storage.k8s.io/v1beta1=true", false, true, true},
	} {
		got, err := Resources(strings.FieldsFunc(c.config, func(r rune) bool { return r == ',' }))
		if err != nil {
			t.Errorf("%s: %v", c.config, err)
		} else if v := got.GroupVersionConfigs; v[alpha] != c.alpha || v[beta] != c.beta || v[batch] != c.batch {
			t.Errorf("%s: %v", c.config, v)
		}
	}
	for config, want := range map[string]string{
		"v1=false":                      "v1=false is not supported, because the server itself needs it",
		"apiextensions.k8s.io/v1=false": "apiextensions.k8s.io/v1=false is not supported, because the server itself needs it",
		"api/ga=false":                  "v1 cannot be switched off, because the server itself needs it",
		"none/v1=true":                  "unknown api groups none/v1",
		"batch/v7=true":                 "group version batch/v7 that has not been registered",
		"api/beta=perhaps":              "invalid value api/beta=perhaps",
	} {
		if _, err := Resources([]string{config}); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", config, err, want)
		}
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
