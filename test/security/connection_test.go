package security

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestUpgradeLineAloneIsNoUpgrade checks that an Upgrade header that Connection does not list has
// no effect: the request counts against the limit of its kind.
func TestUpgradeLineAloneIsNoUpgrade(t *testing.T) {
	deadline(t, time.Minute)
	g := startGateway(t, "--max-watches=1")
	watch := dial(t, g.URL(), nil, "http/1.1")
	must(t, watch.SetDeadline(time.Now().Add(30*time.Second)))
	_, err := fmt.Fprintf(watch, "GET /api/v1/namespaces?watch=1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", kube.AdminToken())
	must(t, err)
	_, err = io.ReadFull(watch, make([]byte, len("HTTP/1.1 200 OK")))
	must(t, err)
	for _, connection := range []string{"close", "close, upgrade"} {
		a := roundTrip(t, dial(t, g.URL(), nil, "http/1.1"), fmt.Sprintf(
			"GET /api/v1/namespaces/default HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nConnection: %s\r\nUpgrade: x\r\n\r\n", kube.AdminToken(), connection))
		want := http.StatusOK
		if strings.Contains(connection, "upgrade") {
			want = http.StatusTooManyRequests
		}
		if a.status != want {
			t.Errorf("Connection: %s: %s, want %d", connection, a, want)
		}
	}
}
