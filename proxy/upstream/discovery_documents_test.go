package upstream

import (
	"encoding/json"
	"testing"
	"time"
)

// TestRestoredDiscovery: what an earlier process read counts until the upstream is read.
func TestRestoredDiscovery(t *testing.T) {
	f := &fakeDiscovery{}
	c := newServer(t, f.ServeHTTP).client(t, func(*Options) {})
	first := c.Discovery()
	if docs := first.Documents(); !docs.At.IsZero() || first.Restore(&docs) || first.Read() {
		t.Errorf("before it is read: %+v", docs)
	}
	if err := first.Refresh(testContext(t)); err != nil {
		t.Fatal(err)
	}
	content, err := json.Marshal(first.Documents())
	if err != nil {
		t.Fatal(err)
	}
	var docs Documents
	if err := json.Unmarshal(content, &docs); err != nil {
		t.Fatal(err)
	}
	docs.At = time.Now().Add(-time.Hour)
	again := c.Discovery()
	if !again.Restore(&docs) || again.Read() || !again.Documents().At.Equal(docs.At) {
		t.Errorf("restored: %+v", again.Documents())
	}
	for _, gvr := range []struct {
		name  string
		known bool
	}{{"pods", true}, {"nothing", false}} {
		if _, ok := again.Known(podsResource.GroupVersion().WithResource(gvr.name)); ok != gvr.known {
			t.Errorf("%s is known: %t", gvr.name, ok)
		}
	}
	f.broken.Store(true)
	if err := again.Refresh(testContext(t)); err == nil || again.Read() {
		t.Errorf("error %v, read %t", err, again.Read())
	}
	f.broken.Store(false)
	if err := again.Refresh(testContext(t)); err != nil || !again.Read() || again.Restore(&docs) || !again.Documents().At.After(docs.At) {
		t.Errorf("error %v, read %t, at %v", err, again.Read(), again.Documents().At)
	}
}
