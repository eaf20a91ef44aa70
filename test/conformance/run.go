package conformance

import (
	"context"
	"testing"

	"golang.org/x/sync/errgroup"
)

// An Env is what the cases need to know of the state that both servers show.
type Env struct {
	Users    map[string]Credentials
	Versions Versions
}

// Versions are resourceVersions of the seeded state.
type Versions struct {
	Expired int64 // compacted away, and from before the oracle's start
	Start   int64 // before the objects that the cases read
	Middle  int64 // with the pods, before some of them were changed and deleted
	Seeded  int64 // the newest
}

// steadyTries is how often a case is asked again when the oracle itself gave two different answers around the
// target's: relative times in tables move on every second.
const steadyTries = 10

// RunReads runs cases that change nothing, each as a subtest: the oracle is asked, the target, and the oracle once
// more. The two answers of the oracle must be alike, or the comparison would mean nothing.
func RunReads(ctx context.Context, t *testing.T, env *Env, oracle, target *Target, cases []Case) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) { runRead(ctx, t, env, oracle, target, c) })
	}
}

func runRead(ctx context.Context, t *testing.T, env *Env, oracle, target *Target, c Case) {
	as, ok := env.Users[c.as()]
	if !ok {
		t.Fatalf("no user %q", c.as())
	}
	if c.Slow {
		t.Parallel()
	}
	var unsteady []string
	for range steadyTries {
		asked, err := ask(ctx, c, as, oracle, target, oracle)
		if err != nil {
			t.Fatalf("%s: %v", c.Path, err)
		}
		if s := surprises(c, asked[0]); len(s) > 0 {
			t.Fatalf("the oracle's answer to %s is not what the case says:\n%s", c.Path, lines(s))
		}
		if unsteady = differences(c, asked[0], asked[2]); len(unsteady) > 0 {
			continue
		}
		if d := differences(c, asked[0], asked[1]); len(d) > 0 {
			t.Errorf("%s %s as %s:\n%s", c.Method, c.Path, c.as(), lines(d))
		}
		if c.Walk {
			crossTokens(ctx, t, c, as, oracle, target, asked[0], asked[1])
		}
		return
	}
	t.Fatalf("the oracle answers %s differently each time:\n%s", c.Path, lines(unsteady))
}

// ask plays a case against one server after the other, or, if it is slow, against all at the same time.
func ask(ctx context.Context, c Case, as Credentials, servers ...*Target) ([]answer, error) {
	out := make([]answer, len(servers))
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

// crossTokens reads the second page of each server with the token that the other one gave.
func crossTokens(ctx context.Context, t *testing.T, c Case, as Credentials, oracle, target *Target, fromOracle, fromTarget answer) {
	if len(fromOracle.pages) < 2 || len(fromTarget.pages) < 2 {
		return // reported as a difference already
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
	atTarget := page(target, continueToken(fromOracle.pages[0].Body))
	for _, d := range responseDifferences(c, fromOracle.pages[1], atTarget) {
		t.Errorf("page 2 of %s with the token of %s: %s", target.Name, oracle.Name, d)
	}
	atOracle := page(oracle, continueToken(fromTarget.pages[0].Body))
	for _, d := range responseDifferences(c, atOracle, fromTarget.pages[1]) {
		t.Errorf("page 2 of %s with the token of %s, want what %s says: %s", oracle.Name, target.Name, oracle.Name, d)
	}
}

// dedicated are the cases that have a test function of their own.
var dedicated = []string{
	"idle/5 bookmarks", "old/15 without WatchList", "stream/70 exec, port-forward", "stream/71 log follow", "fault/74 the upstream is lost",
}
