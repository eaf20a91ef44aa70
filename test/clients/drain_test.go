package clients

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// TestDrain ends a gateway with SIGTERM while every client reads a list and watches. The lists
// complete, the watches end without an error, and clients that report GOAWAY have received it.
func TestDrain(t *testing.T) {
	ctx := deadline(t)
	g := startGateway(t, "--shutdown-drain=20s") // long enough for lists of 10 MB, even on a busy machine
	var lists, watches []*exchange
	var drivers []*driver
	for _, c := range all {
		if c.paced {
			continue // it takes longer than the others
		}
		d := &driver{peer: c.connect(t, g.URL()), token: kube.Token(realkube.Admin)}
		drivers = append(drivers, d)
		watches = append(watches, d.get(maps+"?watch=true&fieldSelector=metadata.name=map-0000"))
		lists = append(lists, d.send(request{Method: "GET", Path: maps + "?resourceVersion=0", Hold: true}))
	}
	for i := range lists {
		lists[i].awaitHead(ctx, t, 200)
		watches[i].awaitText(ctx, t, `"map-0000"`)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- g.Stop(ctx) }()
	for _, d := range drivers {
		if s, ok := d.peer.(*scripted); ok && s.reportsGoAway {
			awaitGoAway(ctx, t, s)
		}
	}
	for _, list := range lists {
		list.resume()
	}
	for i := range lists {
		checkList(t, lists[i].whole(ctx, t, 200))
		watches[i].whole(ctx, t, 200)
	}
	if err := <-stopped; err != nil {
		t.Errorf("the gateway ended with: %v", err)
	}
}

// awaitGoAway waits for the GOAWAY frame of a graceful shutdown.
func awaitGoAway(ctx context.Context, t *testing.T, s *scripted) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		s.mu.Lock()
		got := strings.Join(s.goneAway, "")
		s.mu.Unlock()
		if strings.Contains(strings.ReplaceAll(got, " ", ""), `"code":0`) {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("no GOAWAY with NO_ERROR, but %q", got)
		}
	}
}
