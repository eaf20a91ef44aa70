package charts

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
)

// TestSchemas compares every OpenAPI document of the two servers.
func TestSchemas(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	originConfig, err := origin.AdminConfig()
	must(t, err)
	read := func(server int, path string) any {
		config := []*rest.Config{kube.AdminConfig(), originConfig}[server]
		client, err := rest.HTTPClientFor(config)
		must(t, err)
		defer client.CloseIdleConnections()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+path, http.NoBody)
		must(t, err)
		response, err := client.Do(req)
		must(t, err)
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		must(t, err)
		if response.StatusCode != http.StatusOK {
			t.Fatalf("%s at %s: %d %.200s", path, serverNames[server], response.StatusCode, body)
		}
		var document any
		must(t, json.Unmarshal(body, &document))
		return document
	}
	var paths [servers][]string
	for i := range paths {
		list, _ := read(i, "/openapi/v3").(map[string]any)
		all, _ := list["paths"].(map[string]any)
		paths[i] = slices.Sorted(maps.Keys(all))
	}
	if diff := cmp.Diff(paths[0], paths[1]); diff != "" {
		t.Errorf("/openapi/v3 (-%s +%s):\n%s", serverNames[0], serverNames[1], diff)
	}
	documents := []string{"/openapi/v2"}
	for _, path := range paths[0] {
		if slices.Contains(paths[1], path) {
			documents = append(documents, "/openapi/v3/"+path)
		}
	}
	for _, path := range documents {
		if diff := differences("", read(0, path), read(1, path)); len(diff) > 0 {
			t.Errorf("%s (at %s, at %s), %d differences:\n%s", path, serverNames[0], serverNames[1], len(diff), strings.Join(diff[:min(len(diff), 20)], "\n"))
		}
	}
}

// differences lists where two JSON values differ; whole documents are too large to print.
func differences(at string, a, b any) []string {
	if left, ok := a.(map[string]any); ok {
		if right, ok := b.(map[string]any); ok {
			keys := map[string]bool{}
			for key := range left {
				keys[key] = true
			}
			for key := range right {
				keys[key] = true
			}
			var found []string
			for _, key := range slices.Sorted(maps.Keys(keys)) {
				found = append(found, differences(at+"/"+key, left[key], right[key])...)
			}
			return found
		}
	}
	if reflect.DeepEqual(a, b) {
		return nil
	}
	return []string{fmt.Sprintf("%s: %.200v, %.200v", at, a, b)}
}
