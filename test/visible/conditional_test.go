package visible

import (
	"context"
	"net/http"
	"testing"
	"time"
)

// TestConditionsAreNoPermission checks that the gateway, like kube-apiserver, rejects requests that
// an authorizer allows only under conditions (KEP-5681).
func TestConditionsAreNoPermission(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	const name = "conditional"
	hook.allowConditionally(name)
	t.Cleanup(func() { hook.allowConditionally("") })
	header := user{name: name}.header(true)
	kube, gateway := newClient(t, bed.Kube.URL()), newClient(t, startGateway(t).URL())
	var reviews int64 // caused by the gateway
	for _, path := range []string{
		"/api/v1/namespaces", "/api/v1/namespaces?resourceVersion=0", "/api/v1/namespaces?resourceVersion=0&watch=1",
		"/api/v1/namespaces/default", "/api/v1/namespaces/default/pods?resourceVersion=0", "/api/v1/namespaces/default/pods/none/log",
	} {
		var want *http.Response
		var wantBody []byte
		between := hook.conditions.Load()
		for before := between; between == before && ctx.Err() == nil; { // kube-apiserver caches a decision for a moment
			var err error
			want, wantBody, err = kube.get(ctx, path, header)
			must(t, err)
			between = hook.conditions.Load()
		}
		got, gotBody, err := gateway.get(ctx, path, header)
		must(t, err)
		reviews += hook.conditions.Load() - between
		if want.StatusCode != http.StatusForbidden {
			t.Errorf("%s: kube-apiserver responds %d", path, want.StatusCode)
		}
		if got.StatusCode != want.StatusCode || string(gotBody) != string(wantBody) {
			t.Errorf("%s: %d %s, want %d %s", path, got.StatusCode, gotBody, want.StatusCode, wantBody)
		}
	}
	if reviews == 0 {
		t.Error("the gateway caused no review")
	}
}
