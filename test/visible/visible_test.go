package visible

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/internal/soak"
	"github.com/kubeweir/kubeweir/test/realkube/testbed"
)

// seedSeen reports whether a response contains the seeded secret, plain or in base64 at any offset
// modulo 3.
func seedSeen(raw []byte) bool {
	if bytes.Contains(raw, []byte(seededSecret)) {
		return true
	}
	for before := range 3 {
		text := base64.StdEncoding.EncodeToString([]byte("..."[:before] + seededSecret))
		if bytes.Contains(raw, []byte(text[4:len(text)-4])) { // the first and last characters depend on the neighboring bytes
			return true
		}
	}
	return false
}

// settleTime is how long a change of permissions may take to be effective everywhere.
const settleTime = 20 * time.Second

// bench is the gateway, kube-apiserver, and statistics of the comparison.
type bench struct {
	t       *testing.T
	world   *world
	oracle  *oracle
	gateway *client

	compared, whole, narrowed, rejected int
	seeds, redacted                     int // responses with the seeded secret, and redacted responses
	ended, left                         int
	slowest                             time.Duration
	denies                              bool // the webhook denies requests that RBAC allows
	denied                              int  // cases while denies is true
}

// TestVisible compares random requests.
func TestVisible(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Hour)
	defer cancel()
	random := rand.New(rand.NewPCG(soak.Seed(t), 1))
	usual := newClient(t, startGateway(t).URL())
	// The webhook's denials do not change RBAC objects, so the gateway notices them only when it
	// reviews decisions again.
	quick := newClient(t, startGateway(t, "--authorization-allowed-ttl=500ms", "--authorization-denied-ttl=500ms", "--authorization-watch-recheck-period=1s").URL())
	b := &bench{t: t, world: newWorld(ctx, t, random), gateway: usual}
	b.oracle = &oracle{client: newClient(t, bed.Kube.URL())}
	aggregate(ctx, t)
	var err error
	b.oracle.namespaces, err = b.oracle.keys(ctx, admin(), "/api/v1/namespaces")
	must(t, err)
	b.world.changeRights(ctx, 60)
	b.settle(ctx)
	for state := 0; b.compared < cases() && !t.Failed(); state++ {
		if b.denies = state%4 == 2; b.denies {
			b.gateway = quick
			hook.deny(random)
			b.settle(ctx)
		}
		for range min(casesPerState, cases()-b.compared) {
			b.compare(ctx, randomRequest(random))
		}
		watches := b.openSome(ctx, random)
		if b.denies {
			hook.deny(random)
		} else {
			b.world.changeRights(ctx, 1+random.IntN(6))
		}
		changed := time.Now()
		b.settle(ctx)
		for _, w := range watches {
			b.follow(ctx, w, changed)
		}
		if b.denies {
			hook.denyNothing()
			b.gateway = usual
		}
	}
	t.Logf("%d redacted responses contain no secret, %d others do", b.redacted, b.seeds)
	if b.redacted == 0 || b.seeds == 0 {
		t.Error("no response contained a secret, or none was redacted")
	}
	t.Logf("%d of the requests came while the webhook denied some requests that RBAC allows; it received %d reviews", b.denied, hook.requested.Load())
	t.Logf("%d requests: %d narrowed, %d rejected, %d complete; of the watches open at a change of permissions, %d ended, the last one after %v, and %d stayed open",
		b.compared, b.narrowed, b.rejected, b.whole, b.ended, b.slowest.Round(time.Millisecond), b.left)
}

// settle waits until the decisions of kube-apiserver and the gateway reflect the current
// permissions.
func (b *bench) settle(ctx context.Context) {
	b.t.Helper()
	must(b.t, testbed.Poll(ctx, settleTime, func() error {
		for _, u := range users {
			for _, res := range resources {
				for _, watch := range []bool{false, true} {
					r := &request{user: u, resource: res, form: forms[0], watch: watch}
					if watch {
						r.options = map[string][]string{"sendInitialEvents": {"true"}, "resourceVersionMatch": {"NotOlderThan"}, "allowWatchBookmarks": {"true"}}
					}
					if err := b.differs(ctx, r); err != nil {
						return err
					}
				}
			}
		}
		return nil
	}))
}

// compare fails the test if the response to a request is wrong.
func (b *bench) compare(ctx context.Context, r *request) {
	b.t.Helper()
	if err := b.differs(ctx, r); err != nil {
		b.t.Errorf("case %d: %v", b.compared, err)
	}
	if b.compared++; b.denies {
		b.denied++
	}
}

// differs returns an error that says how the response to a request is wrong.
func (b *bench) differs(ctx context.Context, r *request) error {
	want, err := b.oracle.expect(ctx, r)
	if err != nil {
		return fmt.Errorf("%v: %w", r, err)
	}
	var got response
	if r.watch {
		var s *stream
		if s, err = b.gateway.watch(ctx, r); err == nil {
			got, err = s.initial()
			s.close()
		}
	} else {
		got, err = b.gateway.list(ctx, r)
	}
	if err != nil {
		return fmt.Errorf("%v: %w", r, err)
	}
	switch seen := seedSeen(got.raw); {
	case seen && r.user.isScreen():
		return fmt.Errorf("%v: the redacted view contains a secret: %.1000s", r, got.raw)
	case seen:
		b.seeds++
	case r.user.isScreen() && got.status == http.StatusOK:
		b.redacted++
	}
	if err := want.differs(r, &got); err != nil {
		return fmt.Errorf("%v: %w\ngot %d %q %.500s", r, err, got.status, got.keys, got.raw)
	}
	switch {
	case want.rejected:
		b.rejected++
	case want.whole:
		b.whole++
	default:
		b.narrowed++
	}
	return nil
}

// differs compares a response with the expectation.
func (e *expectation) differs(r *request, a *response) error {
	status, warning := http.StatusOK, ""
	switch {
	case e.rejected:
		status = http.StatusForbidden
	case !e.whole:
		warning = warningOf(len(e.in))
	}
	if field := r.selectors.Get("fieldSelector"); warning != "" && strings.Contains(field, "metadata.namespace=") {
		// The gateway has only checked the selected namespace.
		only := field[strings.Index(field, "metadata.namespace=")+len("metadata.namespace="):]
		warning = warningOf(1)
		if !slices.Contains(e.in, only) {
			status, warning = http.StatusForbidden, ""
		}
	}
	switch {
	case a.status != status:
		return fmt.Errorf("status %d, want %d: visible namespaces are %q", a.status, status, e.in)
	case status != http.StatusOK:
		return nil
	case !r.socket && a.warning != warning && a.warning != warningOf(len(e.in)-e.absent):
		return fmt.Errorf("Warning %q, want %q: visible namespaces are %q", a.warning, warning, e.in)
	}
	want := slices.Collect(func(yield func(string) bool) {
		for key := range e.keys {
			if !yield(key) {
				return
			}
		}
	})
	slices.Sort(want)
	got := slices.Clone(a.keys)
	if !r.options.Has("sortBy") && !slices.IsSorted(got) {
		return fmt.Errorf("the response is not sorted")
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		return fmt.Errorf("want %q", want)
	}
	if limit := r.options.Get("limit"); a.remaining != nil && int(*a.remaining)+atoi(limit) != len(want) {
		return fmt.Errorf("remainingItemCount is %d, of %d objects", *a.remaining, len(want))
	}
	if r.counts && a.count != len(want) {
		return fmt.Errorf("countBy counts %d objects, want %d", a.count, len(want))
	}
	return nil
}

func atoi(s string) (n int) {
	_, _ = fmt.Sscan(s, &n)
	return n
}

func warningOf(n int) string {
	switch n {
	case 0:
		return ""
	case 1:
		return `299 kubeweir "only 1 namespace that you may list"`
	}
	return fmt.Sprintf(`299 kubeweir "only %d namespaces that you may list"`, n)
}
