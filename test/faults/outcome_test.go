package faults

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube/testbed"
)

// An outcome is what a fault did to clients.
type outcome struct {
	fault   *fault
	scene   *scene
	probes  []recovery // of the scene's
	watches []recovery
}

// A recovery is how long after the end of a fault something was as before, or that it was not.
type recovery struct {
	took time.Duration
	err  error
}

// hangLimit is how long a request may wait: the time after which an upstream that says nothing is gone, and a little.
const hangLimit = 15 * time.Second

// crowdedLimit is hangLimit where requests wait for their turn.
const crowdedLimit = 45 * time.Second

// check fails the test where an answer was not as it has to be.
func (o *outcome) check(ctx context.Context, t *testing.T) {
	t.Helper()
	s := o.scene
	for i := range s.probes {
		o.checkProbe(t, &s.probes[i], o.probes[i])
	}
	for i, w := range s.watches {
		if r := o.watches[i]; r.err != nil || late(r) {
			t.Errorf("the open %s watch is as before after %s: %v", w.name, r.took, r.err)
		}
	}
	o.checkCreated(ctx, t)
	o.checkWatches(ctx, t)
}

// late reports whether a recovery has taken too long.
func late(r recovery) bool {
	if *long {
		return r.took > recoveryLimit
	}
	return r.took > busyLimit
}

// tooOld is the age from which on an answer has to say it.
func tooOld() time.Duration {
	if *long {
		return staleLimit
	}
	return busyStale
}

func (o *outcome) checkProbe(t *testing.T, p *probe, r recovery) {
	t.Helper()
	if r.err != nil || late(r) {
		t.Errorf("%s is answered as before after %s: %v", p.name, r.took, r.err)
	}
	s, hangs := o.scene, hangLimit
	if o.fault.crowded {
		hangs = crowdedLimit
	}
	counted := map[string]int{}
	complain := func(a *sample, format string, args ...any) {
		what := fmt.Sprintf(format, args...)
		if counted[what]++; counted[what] == 1 {
			t.Errorf("%s: %s; %s after the fault began", what, a, a.began.Sub(s.begin))
		}
	}
	var newest *sample // of those that came before, in the order of their ends
	for _, a := range s.log.of(p, time.Time{}, time.Now()) {
		switch {
		case a.err != nil:
			complain(a, "no answer")
		case !a.good() && a.status != 503 && a.status != 504 && a.status != 429 && !(a.status == 500 && o.fault.own):
			complain(a, "a wrong status, %d", a.status)
		case a.status == 503 && !a.retryAfter && p.serves != written:
			complain(a, "503 without Retry-After")
		}
		if a.took > hangs {
			complain(a, "a request hangs")
		}
		if !a.good() {
			continue
		}
		if late := s.staleness(a); !a.marked && late > tooOld() {
			complain(a, "stale and not marked (%s)", late)
		} else if a.marked && late > a.age*9/8+tooOld() { // the delay is known to an eighth of it
			complain(a, "older than it says (%s, not %s)", late.Round(time.Second), a.age)
		}
		if newest != nil && a.version < newest.version && a.began.After(newest.ended()) {
			complain(a, "the version goes back, from %d to %d", newest.version, a.version)
		}
		if newest == nil || a.version > newest.version {
			newest = a
		}
		if p.serves == fromUpstream && a.version != 0 && a.version < s.writer.upTo(a.began) {
			complain(a, "a strict read at %d does not hold %d", a.version, s.writer.upTo(a.began))
		}
	}
}

// checkCreated looks at kube-apiserver for what the answers to creations promise.
func (o *outcome) checkCreated(ctx context.Context, t *testing.T) {
	t.Helper()
	s := o.scene
	for i := range s.probes {
		p := &s.probes[i]
		if p.serves != written {
			continue
		}
		for _, a := range s.log.of(p, time.Time{}, time.Now()) {
			err := s.writer.send(ctx, "GET", a.request.path+"/"+a.request.name, "")
			switch there := err == nil; {
			case !there && !strings.Contains(err.Error(), "404"):
				t.Errorf("%s: %v", a.request.name, err)
			case a.status == 201 && !there:
				t.Errorf("%s: answered 201 and is not there", a.request.name)
			case a.status == 503 && a.retryAfter && there:
				t.Errorf("%s: is there, and the answer says to send it again: %s", a.request.name, a)
			}
		}
	}
}

// checkWatches holds the open watches against the truth, once they have seen everything.
func (o *outcome) checkWatches(ctx context.Context, t *testing.T) {
	t.Helper()
	s := o.scene
	last := s.writer.last()
	truth, err := history(ctx, s.kube, s.name, s.before, last)
	must(t, err)
	if n := len(truth.Events); n > 0 {
		last = truth.Events[n-1].RV
	}
	for _, w := range s.watches {
		err := testbed.Poll(ctx, 10*time.Second, func() error {
			if at := w.last(); at < last {
				return fmt.Errorf("it is at %d, the last event at %d: %v", at, last, w.ended())
			}
			return nil
		})
		if err == nil {
			full, historyErr := history(ctx, s.kube, s.name, s.before, w.last())
			must(t, historyErr)
			if o.fault.restarts {
				full = w.merged(full, s.writer.after(s.begin.Add(-quietTime/2)), s.well)
			}
			err = w.check(full)
		}
		if err != nil {
			t.Errorf("the open %s watch: %v", w.name, err)
		}
	}
}

// during is what clients got of some probes while the fault lasted, in a few words.
func (o *outcome) during(probes ...*probe) string {
	var samples []*sample
	for _, p := range probes {
		samples = append(samples, o.scene.log.of(p, o.scene.begin, o.scene.end)...)
	}
	if len(samples) == 0 {
		return "–"
	}
	slices.SortFunc(samples, func(a, b *sample) int { return a.began.Compare(b.began) })
	counts := map[string]int{}
	stale := time.Duration(0)
	for _, a := range samples {
		counts[a.code()]++
		if a.good() && !a.marked {
			stale = max(stale, o.scene.staleness(a))
		}
	}
	codes := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(counts[b]-counts[a], strings.Compare(a, b))
	})
	longest := func(of []*sample) string {
		most := time.Duration(0)
		for _, a := range of {
			most = max(most, a.took)
		}
		return class(most)
	}
	first, later := longest(samples), longest(samples[len(samples)*2/3:])
	out := strings.Join(codes, ", ") + "; " + first
	if first != later {
		out += ", then " + later
	}
	if stale > staleLimit {
		out += "; unmarked " + class(stale)
	}
	return out
}

// code is the status of an answer, with a star when it says that it is stale.
func (a *sample) code() string {
	switch {
	case a.err != nil:
		return "none"
	case a.marked:
		return fmt.Sprint(a.status, "\\*")
	}
	return fmt.Sprint(a.status)
}

// class is the class of a time, which does not depend on the machine.
func class(d time.Duration) string {
	for _, limit := range []time.Duration{time.Second, 3 * time.Second, 12 * time.Second, 30 * time.Second} {
		if d <= limit {
			return fmt.Sprintf("≤ %.0f s", limit.Seconds())
		}
	}
	return "> 30 s"
}

// slowest is the longest of the recoveries.
func (o *outcome) slowest() recovery {
	most := recovery{}
	for _, r := range append(slices.Clone(o.probes), o.watches...) {
		if r.err != nil {
			return r
		}
		if r.took > most.took {
			most = r
		}
	}
	return most
}
