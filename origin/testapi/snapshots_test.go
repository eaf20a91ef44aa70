package testapi

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/origin/storage"
	"github.com/kubeweir/kubeweir/origin/storage/embedded"
)

// TestResetWithoutClient: a client that does not wait for the response leaves no half of the objects.
func TestResetWithoutClient(t *testing.T) {
	engine, err := embedded.Open(embedded.Options{Dir: "data", FS: embedded.InMemory()})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	a := &API{Faults: NewFaults(), Snapshots: NewSnapshots(engine, "/registry", time.Hour), Rewind: func() {}}
	if err := a.Snapshots.Save(t.Context(), Initial); err != nil {
		t.Fatal(err)
	}
	if _, err := engine.Put(t.Context(), "/registry/configmaps/default/a", []byte("a"), storage.Precondition{}, 0); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := httptest.NewRecorder()
	a.Handler().ServeHTTP(w, httptest.NewRequestWithContext(ctx, "POST", api.TestAPIPath+"reset", nil))
	left, err := engine.Range(t.Context(), storage.RangeOptions{Prefix: "/registry/"})
	if w.Code != 200 || err != nil || len(left.KVs) != 0 {
		t.Errorf("%d %s; %v, %v", w.Code, w.Body, left.KVs, err)
	}
}
