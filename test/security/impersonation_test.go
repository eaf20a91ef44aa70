package security

import (
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// TestSidecarKeepsImpersonation checks that a client of the sidecar listener that impersonates a
// user with fewer permissions than the gateway's gets only that user's permissions, for writes and
// for reads that the cache could serve.
func TestSidecarKeepsImpersonation(t *testing.T) {
	g := startGateway(t, "--insecure-listen=127.0.0.1:0")
	ctx := deadline(t, time.Minute)
	base := "http://" + sidecarAddress(t, g)
	const pods, review = "/api/v1/pods", "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	const whoAmI = `{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}`
	asAlice := http.Header{"Impersonate-User": {realkube.Alice}}

	for path, code := range map[string]int{
		pods: 403, pods + "?resourceVersion=0": 403, pods + "?watch=1&timeoutSeconds=1": 403,
		"/api/v1/namespaces/default/pods/none": 403, "/version": 200, "/metrics": 403,
	} {
		if a := plain(ctx, t, "GET", base+path, nil, ""); path != "/metrics" && a.status == 403 {
			t.Errorf("%s as the gateway: %v", path, a)
		}
		a := plain(ctx, t, "GET", base+path, asAlice, "")
		if a.status != code || code == 403 && !strings.Contains(a.body, `User \"alice\" cannot`) {
			t.Errorf("%s as alice: %v", path, a)
		}
	}
	if a := plain(ctx, t, "DELETE", base+"/api/v1/namespaces/default/configmaps/kube-root-ca.crt", asAlice, ""); a.status != 403 {
		t.Errorf("a write as alice: %v", a)
	}
	full := http.Header{"Impersonate-User": {"zoe"}, "Impersonate-Group": {"dev", "ops"}, "Impersonate-Uid": {"7"}, "Impersonate-Extra-Scopes": {"read"}}
	if a := plain(ctx, t, "POST", base+review, full, whoAmI); a.status != 201 ||
		!regexp.MustCompile(`"username":"zoe","uid":"7","groups":\["dev","ops","system:authenticated"\],"extra":\{"scopes":\["read"\]\}`).MatchString(a.body) {
		t.Errorf("SelfSubjectReview: %v", a)
	}
	if a := plain(ctx, t, "GET", base+pods, http.Header{"Impersonate-Group": {"dev"}}, ""); a.status != 400 {
		t.Errorf("impersonation of a group without a user: %v", a)
	}
}

// sidecarAddress returns the address of g's plaintext listener.
func sidecarAddress(t *testing.T, g *realkube.Gateway) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^kubeweir: sidecar on (\S+)`).FindStringSubmatch(g.Log())
	if m == nil {
		t.Fatal("the log does not contain the address of the sidecar listener")
	}
	return m[1]
}

// plain sends a request without credentials and reads the whole response.
func plain(ctx context.Context, t *testing.T, method, url string, header http.Header, body string) response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	must(t, err)
	for name, values := range header {
		req.Header[name] = values
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	must(t, err)
	return response{resp.StatusCode, resp.Header, string(b)}
}
