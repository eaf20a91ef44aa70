package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/soak"
	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/watchmux/watchtest"
)

const (
	backlogNamespace = "backlog"
	// resumedWatches is the number of watches that resume together, half of them over HTTP/1.1.
	resumedWatches = 32
)

// backlogLimits are sizes at which transports start another buffer, record, frame, window or write.
var backlogLimits = []int{16 << 10, 1<<16 - 1, 64 << 10, 128 << 10, 512 << 10}

// backlog is a history of ConfigMaps whose events have known sizes.
type backlog struct {
	t       *testing.T
	rng     *rand.Rand
	truth   watchtest.Truth
	sizes   []int // of the events as JSON lines
	events  *bufio.Reader
	padding int // of the last object
}

// TestResumedWatchesBringTheWholeBacklog resumes watches at versions whose backlog is exactly as
// large as a limit of the transports, or slightly smaller or larger. Every byte must arrive.
func TestResumedWatchesBringTheWholeBacklog(t *testing.T) {
	ctx := deadline(t, 5*time.Minute)
	createNamespaces(ctx, t, backlogNamespace)
	g := startGateway(t)
	b := startBacklog(ctx, t, g)
	for range 300 {
		b.create(ctx, 100+b.rng.IntN(3000))
	}
	var clients []*client
	for i := range resumedWatches {
		clients = append(clients, newClient(t, "gateway", g.URL(), as(realkube.Admin), i%2 == 0))
	}
	offsets := []int{0, 1, -1, 2, -2} // events more or fewer than fill the limit
	for _, limit := range backlogLimits {
		first := b.fill(ctx, limit)
		for _, offset := range offsets {
			b.resume(ctx, clients, min(max(0, first+offset), len(b.sizes)-1))
		}
	}
	t.Logf("%d watches were resumed %d times each; the history has %d events", resumedWatches, len(backlogLimits)*len(offsets), len(b.sizes))
}

// startBacklog starts a history, and a watch that measures it.
func startBacklog(ctx context.Context, t *testing.T, g *realkube.Gateway) *backlog {
	t.Helper()
	admin := newClient(t, "gateway", g.URL(), as(realkube.Admin), false)
	version, err := kube.Revision(ctx)
	must(t, err)
	// Fill the cache. A watch from before the cache's history would be forwarded.
	admin.get(ctx, t, fmt.Sprintf("%s?resourceVersion=%d", configMapsIn(backlogNamespace), version), "")
	resp, err := admin.open(ctx, request{path: fmt.Sprintf("%s?watch=true&resourceVersion=%d", configMapsIn(backlogNamespace), version)})
	must(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	return &backlog{
		t: t, rng: rand.New(rand.NewPCG(soak.Seed(t), 1)), //nolint:gosec // reproducible
		truth: watchtest.Truth{From: uint64(version)}, events: bufio.NewReader(resp.Body), //nolint:gosec // positive
	}
}

// create creates an object with the given number of bytes of data and reads its event.
func (b *backlog) create(ctx context.Context, padding int) {
	b.t.Helper()
	typed, _ := directClients(b.t)
	cm, err := typed.CoreV1().ConfigMaps(backlogNamespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("item-%04d", len(b.sizes))},
		Data:       map[string]string{"text": strings.Repeat("x", padding)},
	}, metav1.CreateOptions{})
	must(b.t, err)
	rv, err := api.ParseResourceVersion(cm.ResourceVersion)
	must(b.t, err)
	line, err := b.events.ReadString('\n')
	must(b.t, err)
	e, _, err := nextJSON(bufio.NewReader(strings.NewReader(line)))
	want := watchtest.WireEvent{Type: api.Added, Key: backlogNamespace + "/" + cm.Name, RV: rv}
	if err != nil || e != want {
		b.t.Fatalf("the event is %s (%v), want %s", e, err, want)
	}
	b.truth.Events = append(b.truth.Events, want)
	b.sizes = append(b.sizes, len(line))
	b.padding = padding
}

// fill creates an object such that the events from some object on have about 40 bytes less than
// limit in total. It returns the position of that object.
func (b *backlog) fill(ctx context.Context, limit int) (first int) {
	b.t.Helper()
	head := b.sizes[len(b.sizes)-1] - b.padding // size of an event without the data
	size, first := 0, len(b.sizes)
	for first > 0 && size+b.sizes[first-1] <= limit-head-100 {
		first--
		size += b.sizes[first]
	}
	b.create(ctx, limit-40-size-head)
	if size += b.sizes[len(b.sizes)-1]; size <= limit-88 || size > limit {
		b.t.Errorf("the backlog has %d bytes, for a limit of %d", size, limit)
	}
	return first
}

// resume opens watches before the object at a position and waits until each has received all
// events.
func (b *backlog) resume(ctx context.Context, clients []*client, first int) {
	b.t.Helper()
	from := b.truth.From
	if first > 0 {
		from = b.truth.Events[first-1].RV
	}
	r := request{path: fmt.Sprintf("%s?watch=true&resourceVersion=%d", configMapsIn(backlogNamespace), from)}
	var streams []*stream
	for _, c := range clients {
		streams = append(streams, c.mustWatch(ctx, b.t, r, from, false))
	}
	last := b.truth.Events[len(b.truth.Events)-1]
	for i, s := range streams {
		eventually(ctx, b.t, waitTimeout, func() error {
			if seen := s.seen(); s.open() && seen.Last() < last.RV {
				return fmt.Errorf("watch %d from version %d is at version %d, waiting for %s", i, from, seen.Last(), last)
			}
			return nil
		})
		if err := watchtest.Check(s.seen(), b.truth); err != nil {
			b.t.Errorf("watch %d from version %d: %v", i, from, err)
		}
		if s.close(); s.ended != nil && s.ended != io.EOF { //nolint:errorlint // io.EOF is not wrapped
			b.t.Errorf("watch %d from version %d ended: %v", i, from, s.ended)
		}
	}
}
