package conformance

import (
	"context"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/kubeweir/kubeweir/test/steady"
)

// An Env describes the state that both servers show.
type Env struct {
	Users    map[string]Credentials
	Versions Versions
	// OtherRelease means that the oracle runs another release than the one that the cases are written
	// for. The facts stated by cases may not hold, and resources may be missing.
	OtherRelease bool
}

// Versions are resourceVersions of the seeded state.
type Versions struct {
	Expired int64 // compacted, and from before the start of the oracle's kube-apiserver
	Start   int64 // before the cases' objects were written
	Middle  int64 // after the pods were created, before some were changed and deleted
	Changed int64 // of the first change after Middle
	Seeded  int64 // the newest
}

// steadyTries is how often a case is retried if the oracle's responses before and after the
// target's differ: relative times in tables advance every second.
const steadyTries = 10

// slowAtOnce is the maximum number of concurrent slow cases.
const slowAtOnce = 12

// RunReads runs cases that write nothing, each as a subtest: it queries the oracle and the target.
// If they differ, it queries the oracle again. Only if both responses of the oracle are equal is
// the comparison valid. Slow cases run concurrently with the others and are reported after them.
func RunReads(ctx context.Context, t *testing.T, env *Env, oracle, target *Target, cases []Case) {
	t.Helper()
	var slow errgroup.Group
	slow.SetLimit(slowAtOnce + 1) // and one goroutine that starts them
	defer func() { _ = slow.Wait() }()
	var waiting []Case
	responses := make(map[string]chan requested)
	for _, c := range cases {
		if c.Slow {
			waiting = append(waiting, c)
			responses[c.Name] = make(chan requested, 1)
		}
	}
	slow.Go(func() error {
		for _, c := range waiting {
			slow.Go(func() error {
				responses[c.Name] <- requestAll(ctx, c, env.Users[c.as()], oracle, target)
				return nil
			})
		}
		return nil
	})
	run := func(c Case, first func() requested) {
		t.Run(c.Name, func(t *testing.T) {
			if _, ok := env.Users[c.as()]; !ok {
				t.Fatalf("no user %q", c.as())
			}
			runRead(ctx, t, env, c, oracle, target, first)
		})
	}
	for _, c := range cases {
		if !c.Slow {
			run(c, func() requested { return requestAll(ctx, c, env.Users[c.as()], oracle, target) })
		}
	}
	for _, c := range waiting {
		run(c, func() requested { return <-responses[c.Name] })
	}
}

// runRead compares the first responses, and retries while the oracle contradicts itself.
func runRead(ctx context.Context, t *testing.T, env *Env, c Case, oracle, target *Target, first func() requested) {
	var unsteady []string
	as := env.Users[c.as()]
	for try := range steadyTries {
		var got requested
		if try == 0 {
			got = first()
		} else {
			got = requestAll(ctx, c, as, oracle, target)
		}
		if got.err != nil {
			t.Fatalf("%s: %v", c.Path, got.err)
		}
		a := got.responses
		if s := surprises(c, a[0]); len(s) > 0 && !env.OtherRelease {
			t.Fatalf("the oracle's response to %s contradicts the case:\n%s", c.Path, lines(s))
		}
		d := differences(c, a[0], a[1])
		if target.HasPriority { // with the same objects, because reads are compared with a shared store
			for i := range min(len(a[0].pages), len(a[1].pages)) {
				d = append(d, priorityDifferences(a[0].pages[i].Header, a[1].pages[i].Header)...)
			}
		}
		if len(d) > 0 {
			again, err := exchange(ctx, oracle, c, as)
			if err != nil {
				t.Fatalf("%s: %v", c.Path, err)
			}
			if unsteady = differences(c, a[0], again); len(unsteady) > 0 {
				continue
			}
			t.Errorf("%s %s as %s:\n%s", c.Method, c.Path, c.as(), lines(d))
		}
		if c.Walk {
			crossTokens(ctx, t, c, as, oracle, target, a[0], a[1])
		}
		return
	}
	t.Fatalf("the oracle's responses to %s differ each time:\n%s", c.Path, lines(unsteady))
}

// requested are the responses of several servers to one case, in the order of the servers.
type requested struct {
	responses []response
	err       error
}

func requestAll(ctx context.Context, c Case, as Credentials, servers ...*Target) requested {
	a, err := requestEach(ctx, c, as, servers...)
	return requested{a, err}
}

// requestEach sends a case to one server after the other or, if it is slow, to all concurrently.
func requestEach(ctx context.Context, c Case, as Credentials, servers ...*Target) ([]response, error) {
	out := make([]response, len(servers))
	var group errgroup.Group
	if !c.Slow {
		group.SetLimit(1)
	}
	for i, server := range servers {
		group.Go(func() (err error) {
			out[i], err = exchange(ctx, server, c, as)
			return err
		})
	}
	return out, group.Wait()
}

// crossTokens reads the second page of each server with the other server's token.
func crossTokens(ctx context.Context, t *testing.T, c Case, as Credentials, oracle, target *Target, fromOracle, fromTarget response) {
	if len(fromOracle.pages) < 2 || len(fromTarget.pages) < 2 {
		return // already reported as a difference
	}
	page := func(server *Target, token string) Response {
		req := c.Request
		req.Path = nextPage(c.Path, token)
		r, err := server.Send(ctx, req, as)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	want, got, same := steady.Compare(
		func() Response { return page(oracle, continueToken(fromTarget.pages[0].Body)) },
		func() Response { return page(target, continueToken(fromOracle.pages[0].Body)) },
		func(a, b Response) bool { return len(responseDifferences(c, a, b)) == 0 })
	if same {
		return
	}
	for _, d := range responseDifferences(c, want, got) {
		t.Errorf("page 2 of %s with the token of %s, and vice versa: %s", target.Name, oracle.Name, d)
	}
}
