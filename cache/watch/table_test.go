package watch_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/form/table"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
)

func TestWatchTable(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newWatchBench(t, cache.Limits{})
		b.pod("default/a")
		client := &watchClient{}
		w := b.watchWith(initial, api.Representation{Transform: api.Table, IncludeObject: api.IncludeNone}, client)
		defer w.stop()
		b.update("default/a")
		synctest.Wait()
		lines := strings.Split(strings.TrimSpace(string(client.data)), "\n")
		if len(lines) != 3 {
			t.Fatalf("%d events: %s", len(lines), client.data)
		}
		for i, line := range lines {
			if got := strings.Contains(line, `"columnDefinitions":null`); got != (i > 0) {
				t.Errorf("event %d: column definitions left out: %v", i, got)
			}
		}
		if !strings.Contains(lines[1], `"k8s.io/initial-events-end":"true"`) {
			t.Errorf("end bookmark: %s", lines[1])
		}
		if !strings.Contains(lines[2], `"type":"MODIFIED"`) || !strings.Contains(lines[2], `"object":null`) {
			t.Errorf("event: %s", lines[2])
		}
	})
}

// TestWatchTableAges checks that shared rows of an event show the ages of the moment they are sent.
func TestWatchTableAges(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newPrintingWatchBench(t, cache.Limits{}, columnsPrinter(t))
		b.pod("default/a")
		time.Sleep(500 * time.Millisecond)
		b.update("default/a")
		b.update("default/a") // the first event has the columns and is never shared
		synctest.Wait()
		time.Sleep(1400 * time.Millisecond)
		for _, want := range []string{`"cells":["a","1s"]`, `"cells":["a","2s"]`} {
			client := &watchClient{}
			w := b.watchWith("resourceVersion=101", api.Representation{Transform: api.Table}, client)
			synctest.Wait()
			w.stop()
			if got := string(client.data); strings.Count(got, want) != 2 {
				t.Errorf("%s, want %s", got, want)
			}
			time.Sleep(200 * time.Millisecond)
		}
	})
}

// columnsPrinter returns a printer of custom resources with an age.
func columnsPrinter(t *testing.T) table.Printer {
	t.Helper()
	p, err := table.NewCustomPrinter([]apiextensionsv1.CustomResourceColumnDefinition{{Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}
