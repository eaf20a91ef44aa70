package security

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// auditEvents reads the audit log written so far. It returns one "verb uri user source" for each
// event.
func auditEvents(t *testing.T, path string) map[string]bool {
	t.Helper()
	content, err := os.ReadFile(path)
	must(t, err)
	events := make(map[string]bool)
	for line := range bytes.Lines(content) {
		var e auditv1.Event
		if json.Unmarshal(line, &e) == nil {
			events[fmt.Sprintf("%s %s %s %s", e.Verb, e.RequestURI, e.User.Username, e.Annotations["kubeweir/source"])] = true
		}
	}
	return events
}

// awaitEvents waits until the audit log has all wanted events.
func awaitEvents(ctx context.Context, t *testing.T, path string, want ...string) {
	t.Helper()
	for {
		events, missing := auditEvents(t, path), []string(nil)
		for _, w := range want {
			if !events[w] {
				missing = append(missing, w)
			}
		}
		if len(missing) == 0 {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("no audit event %q; the log has %v", missing, events)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// TestNoRequestGoesUnrecorded checks that the audit log has all requests through the gateway:
// writes, exec, and forwarded reads.
func TestNoRequestGoesUnrecorded(t *testing.T) {
	log := filepath.Join(t.TempDir(), "audit.log")
	g := startGateway(t, "--audit-log-path", log)
	ctx := deadline(t, time.Minute)
	token := kube.AdminToken()
	const maps = "/api/v1/namespaces/default/configmaps"
	do(ctx, t, g.URL(), token, "POST", maps, `{"metadata":{"name":"recorded"}}`)
	do(ctx, t, g.URL(), token, "GET", "/api/v1/namespaces/default/secrets/s/status", "")
	do(ctx, t, g.URL(), token, "GET", maps+"?resourceVersion=0", "")
	do(ctx, t, g.URL(), token, "DELETE", maps+"/recorded", "")
	do(ctx, t, g.URL(), "nobody's token", "DELETE", maps+"/recorded", "")
	const exec = "/api/v1/namespaces/default/pods/p/exec?command=id"
	roundTrip(t, dial(t, g.URL(), nil, "http/1.1"), fmt.Sprintf("GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"+
		"Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n", exec, token))
	awaitEvents(ctx, t, log,
		"create "+maps+" admin forwarded",
		"get /api/v1/namespaces/default/secrets/s/status admin forwarded",
		"list "+maps+"?resourceVersion=0 admin cached",
		"delete "+maps+"/recorded admin forwarded",
		"delete "+maps+"/recorded  ",
		"get "+exec+" admin forwarded",
	)
	content, err := os.ReadFile(log)
	must(t, err)
	if strings.Contains(string(content), token) {
		t.Error("the audit log contains a token")
	}
}
