package origintest_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/kubeweir/kubeweir/origin/origintest"
)

const widgetDefinition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"widgets.example.com"},
"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"widgets","singular":"widget","kind":"Widget"},
"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"a":{"type":"string"}}}}}}}]}}`

// TestDefinitionChangesWhileRead: the old definition serves on for a moment after a change, and what is read from it then,
// and cached, does not stay: nobody writes these objects again.
func TestDefinitionChangesWhileRead(t *testing.T) {
	const many, readers, changes = 200, 16, 20
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	k := client(t, origintest.Start(t).Config()).RESTClient()
	const definition, widgets = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/apis/example.com/v1/namespaces/default/widgets"
	if err := k.Post().AbsPath(definition).Body([]byte(widgetDefinition)).Do(ctx).Error(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return k.Get().AbsPath(widgets).Do(ctx).Error() == nil })
	for i := range many {
		widget := fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w%03d"},"spec":{"a":"x"}}`, i)
		if err := k.Post().AbsPath(widgets).Body([]byte(widget)).Do(ctx).Error(); err != nil {
			t.Fatal(err)
		}
	}
	// with counts the objects that have a field: in the cache, and as the origin has them.
	with := func(field string) (cached, forwarded int) {
		read := func(req *rest.Request) int {
			body, err := req.DoRaw(ctx)
			if err != nil {
				return -1 // the old definition's end
			}
			return strings.Count(string(body), field)
		}
		return read(k.Get().AbsPath(widgets).Param("resourceVersion", "0")), read(k.Get().AbsPath(widgets).SetHeader("Accept", "application/yaml"))
	}
	for change := range changes {
		field := fmt.Sprint("field", change)
		var done atomic.Bool
		var wg sync.WaitGroup
		for range readers {
			wg.Go(func() {
				for !done.Load() {
					_ = k.Get().AbsPath(widgets).Param("resourceVersion", "0").Do(ctx).Error()
				}
			})
		}
		patch := fmt.Sprintf(`[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/%s","value":{"type":"string","default":"y"}}]`, field)
		err := k.Patch(types.JSONPatchType).AbsPath(definition, "widgets.example.com").Body([]byte(patch)).Do(ctx).Error()
		if err == nil {
			eventually(t, func() bool { _, forwarded := with(field); return forwarded == many })
		}
		done.Store(true)
		wg.Wait()
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for {
			cached, forwarded := with(field)
			if cached == many && forwarded == many {
				t.Logf("after %v", time.Since(began))
				break
			}
			if time.Since(began) > 20*time.Second || ctx.Err() != nil {
				t.Fatalf("change %d: %d objects have the new field in the cache, %d at the origin; want %d", change, cached, forwarded, many)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
}
