package security

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// TestStandaloneRecordsEachRequestOnce checks that the audit log of a standalone server has each
// request exactly once: writes, exec, reads from the cache and others. Requests that the server
// sends to itself are not logged.
func TestStandaloneRecordsEachRequestOnce(t *testing.T) {
	ctx := deadline(t, time.Minute)
	log := filepath.Join(t.TempDir(), "audit.log")
	s := startStandalone(t, realkube.StandaloneOptions{ExtraArgs: []string{"--audit-log-path", log}})
	cfg := administrator(t, s)
	const maps, exec = "/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/pods/p/exec?command=id"
	want := map[string]int{}
	for _, r := range []struct{ method, path, body, event string }{
		{http.MethodPost, maps, `{"metadata":{"name":"recorded"}}`, "create " + maps},
		{http.MethodPatch, maps + "/recorded", `{"data":{"a":"b"}}`, "patch " + maps + "/recorded"},
		{http.MethodGet, maps + "?resourceVersion=0", "", "list " + maps + "?resourceVersion=0"},
		{http.MethodGet, maps + "/recorded?pretty=true", "", "get " + maps + "/recorded?pretty=true"},
		{http.MethodPost, exec, "", "create " + exec},
		{http.MethodDelete, maps + "/recorded", "", "delete " + maps + "/recorded"},
	} {
		_, err := request(ctx, t, cfg, r.method, r.path, r.body)
		must(t, err)
		want[r.event+" kubernetes-admin"]++
	}
	eventually(ctx, t, func() error {
		content, err := os.ReadFile(log)
		if err != nil {
			return err
		}
		got := map[string]int{}
		for line := range strings.Lines(string(content)) {
			var e auditv1.Event
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				return err
			}
			got[e.Verb+" "+e.RequestURI+" "+e.User.Username]++
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("audit events (-want +got):\n%s", diff)
		}
		return nil
	})
}
