package edge_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/edgetest"
)

// TestAccounts: what is unread counts for the user whose stream it is, also on a connection
// of several, and nothing is left when they have gone.
func TestAccounts(t *testing.T) {
	entered, release := make(chan struct{}, 1), make(chan struct{})
	ts := edgetest.Start(t, func(_ context.Context, r *api.Request) *api.Response {
		r.AttributeTo(r.Header.Get("User"))
		if r.Path == "/wait" {
			entered <- struct{}{}
			<-release
		}
		return edgetest.Text("")
	})
	holding := func() string {
		unread := map[string]bool{}
		for user, held := range ts.Buffers.HeldByUser() {
			unread[user] = held >= (256<<10)/2
		}
		return fmt.Sprint(unread)
	}
	await := func(want string) {
		t.Helper()
		for end := time.Now().Add(edgetest.Timeout); holding() != want; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("held: %s, want %s", holding(), want)
			}
		}
	}
	c := ts.Dial()
	for _, user := range []string{"a", "b"} {
		c.Send("GET / HTTP/1.1\r\nHost: x\r\nUser: %s\r\n\r\n", user)
		c.Response("GET")
	}
	await("map[b:false]")
	_ = c.Close()
	await("map[]")
	shared := ts.DialFrames()
	for _, user := range []string{"a", "b", "c"} {
		id := shared.Request("POST", "/wait", true, "user", user)
		edgetest.Receive(t, entered, "request")
		if user != "c" {
			shared.Write(id, strings.Repeat("x", (256<<10)), false)
		}
	}
	await("map[a:true b:true c:false]")
	close(release)
	await("map[a:false]")                                // whose the connection is
	_ = shared.WriteRawFrame(http2.FrameData, 0, 0, nil) // which ends the connection
	await("map[]")
}
