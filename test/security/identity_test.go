package security

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestConnectionHeaderDoesNotTakeImpersonationAway checks that a client cannot remove impersonation
// headers. Requests of clients with certificates are forwarded by impersonation; a Connection
// header (RFC 9110, 7.6.1) may remove the client's own headers, never those that the gateway adds.
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
