package security

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A client that is known by its certificate is forwarded by impersonation. What it names in Connection is its own to
// drop, never what the gateway adds (RFC 9110, 7.6.1).
func TestConnectionHeaderDoesNotTakeImpersonationAway(t *testing.T) {
	deadline(t, time.Minute)
	g := startGateway(t)
	mallory, err := kube.IssueClientCert("mallory", "team-b")
	must(t, err)
	for _, named := range []string{
		"Impersonate-User, Impersonate-Uid, Impersonate-Group, Impersonate-Extra-authentication.kubernetes.io%2Fcredential-id",
		"impersonate-user,impersonate-group", "Authorization", "close, Impersonate-User",
	} {
		body := `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
		a := roundTrip(t, dial(t, g.URL(), &mallory, "http/1.1"), fmt.Sprintf(
			"POST /apis/authentication.k8s.io/v1/selfsubjectreviews HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"+
				"Connection: %s\r\nContent-Length: %d\r\n\r\n%s", named, len(body), body))
		if a.status != 201 || !strings.Contains(a.body, `"username":"mallory"`) {
			t.Errorf("Connection: %s: %s", named, a)
		}
	}
}
