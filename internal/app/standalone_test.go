package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// responds counts the responds of one kind by where they came from.
func responds(t *testing.T, s *Standalone, verb, resource string) map[string]string {
	t.Helper()
	w := httptest.NewRecorder()
	promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	out := make(map[string]string)
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "kubeweir_requests_total{") && strings.Contains(line, `resource="`+resource+`"`) && strings.Contains(line, `verb="`+verb+`"`) {
			_, source, _ := strings.Cut(line, `,source="`)
			source, _, _ = strings.Cut(source, `"`)
			_, n, _ := strings.Cut(line, "} ")
			out[source] = strings.TrimSpace(n)
		}
	}
	return out
}

type object struct {
	Metadata struct{ Name, ResourceVersion string }
	Data     map[string]string
}

// TestReadsAreLinearizable: whoever writes sees it in the next read, of the object
// and of the list, while others write this and other resources; and all of these
// reads are the cache's.
func TestReadsAreLinearizable(t *testing.T) {
	s, client := running(t, "")
	base := s.URL() + "/api/v1/namespaces/default/"
	call(t, client, "POST", s.URL()+"/apis/coordination.k8s.io/v1/namespaces/default/leases", `{"metadata":{"name":"l"}}`, 201)
	ctx, cancel := context.WithCancel(t.Context())
	var noise, group sync.WaitGroup
	noise.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			patch(t, client, s.URL()+"/apis/coordination.k8s.io/v1/namespaces/default/leases/l", fmt.Sprintf(`{"spec":{"leaseTransitions":%d}}`, i))
		}
	})
	const writers, rounds = 4, 100
	for w := range writers {
		group.Go(func() {
			name := fmt.Sprintf("c%d", w)
			call(t, client, "POST", base+"configmaps", `{"metadata":{"name":"`+name+`"}}`, 201)
			for i := range rounds {
				patch(t, client, base+"configmaps/"+name, fmt.Sprintf(`{"data":{"i":"%d"}}`, i))
				var read object
				var list struct{ Items []object }
				if i%2 == 0 {
					decode(t, call(t, client, "GET", base+"configmaps/"+name, "", 200), &read)
				} else {
					decode(t, call(t, client, "GET", base+"configmaps", "", 200), &list)
					for _, item := range list.Items {
						if item.Metadata.Name == name {
							read = item
						}
					}
				}
				if want := fmt.Sprint(i); read.Data["i"] != want {
					t.Errorf("%s is %q, want %q", name, read.Data["i"], want)
				}
			}
			call(t, client, "DELETE", base+"configmaps/"+name, "", 200)
			call(t, client, "GET", base+"configmaps/"+name, "", 404)
		})
	}
	group.Wait()
	cancel()
	noise.Wait()
	for _, verb := range []string{"get", "list"} {
		if got := responds(t, s, verb, "configmaps"); got["cached"] == "" || got["collapsed"] != "" || got["forwarded"] != "" {
			t.Errorf("%s: %v", verb, got)
		}
	}
}

func decode(t *testing.T, text []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(text, v); err != nil {
		t.Error(err)
	}
}

func patch(t testing.TB, client *http.Client, url, body string) {
	req, err := http.NewRequestWithContext(context.Background(), "PATCH", url, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return
	}
	req.Header.Set("Content-Type", "application/merge-patch+json")
	resp, err := client.Do(req)
	if err != nil {
		t.Error(err)
		return
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 200 {
		t.Errorf("%s %v: %s", resp.Status, err, text)
	}
}

// TestVersionsOfOtherResources: a version that the store has reached by writes to
// something else is no reason to wait, nor to ask the origin.
func TestVersionsOfOtherResources(t *testing.T) {
	s, client := running(t, "")
	base := s.URL() + "/api/v1/namespaces/default/"
	call(t, client, "GET", base+"configmaps?resourceVersion=0", "", 200)
	for i := range 20 {
		var secret object
		decode(t, call(t, client, "POST", base+"secrets", fmt.Sprintf(`{"metadata":{"name":"s%d"}}`, i), 201), &secret)
		call(t, client, "GET", base+"configmaps?resourceVersion="+secret.Metadata.ResourceVersion, "", 200)
	}
	if got := responds(t, s, "list", "configmaps"); got["cached"] == "" || len(got) != 1 {
		t.Errorf("%v", got)
	}
}

// TestCustomResources: so it is with custom resources.
func TestCustomResources(t *testing.T) {
	s, client := running(t, "")
	call(t, client, "POST", s.URL()+"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{"metadata":{"name":"widgets.ex.com"},"spec":{
		"group":"ex.com","scope":"Namespaced","names":{"plural":"widgets","kind":"Widget"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`, 201)
	base := s.URL() + "/apis/ex.com/v1/namespaces/default/widgets"
	for range 1000 { // until it is established
		resp, err := client.Get(base)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode == 200 {
			break
		}
	}
	before := responds(t, s, "get", "widgets")["cached"]
	for i := range 10 {
		name := fmt.Sprintf("w%d", i)
		call(t, client, "POST", base, `{"apiVersion":"ex.com/v1","kind":"Widget","metadata":{"name":"`+name+`"},"spec":{"a":1}}`, 201)
		call(t, client, "GET", base+"/"+name, "", 200)
	}
	if after := responds(t, s, "get", "widgets"); after["cached"] == before || after["collapsed"] != "" {
		t.Errorf("%v", after)
	}
}
