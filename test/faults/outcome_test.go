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

// An outcome is what clients saw during and after a fault.
type outcome struct {
	fault   *fault
	scene   *scene
	probes  []recovery // by index of scene.probes
	watches []recovery
}

// A recovery is the time from the end of a fault until a probe or watch recovered, or the error if
// it did not.
type recovery struct {
	took time.Duration
	err  error
}

// hangLimit is the maximum duration of a request: the time until a silent upstream is declared
// unreachable, and some slack.
const hangLimit = 15 * time.Second

// crowdedLimit is hangLimit during faults in which requests queue for bandwidth.
const crowdedLimit = 45 * time.Second

// check fails the test if any response, recovery, write or watch was wrong.
func (o *outcome) check(ctx context.Context, t *testing.T) {
	t.Helper()
	s := o.scene
	for i := range s.probes {
		o.checkProbe(t, &s.probes[i], o.probes[i])
	}
	for i, w := range s.watches {
		if r := o.watches[i]; r.err != nil || late(r) {
			t.Errorf("the open %s watch recovered after %s: %v", w.name, r.took, r.err)
		}
	}
	o.checkCreated(ctx, t)
	o.checkWatches(ctx, t)
}

// late reports whether a recovery took too long.
func late(r recovery) bool {
	if *long {
		return r.took > recoveryLimit
	}
	return r.took > busyLimit
}

// tooOld returns the staleness from which a response must be marked as stale.
func tooOld() time.Duration {
	if *long {
		return staleLimit
	}
	return busyStale
}

func (o *outcome) checkProbe(t *testing.T, p *probe, r recovery) {
	t.Helper()
	if r.err != nil || late(r) {
		t.Errorf("%s recovered after %s: %v", p.name, r.took, r.err)
	}
	s, hangs := o.scene, hangLimit
	if o.fault.crowded {
		hangs = crowdedLimit
	}
	counted := map[string]int{}
	fail := func(a *sample, format string, args ...any) {
		what := fmt.Sprintf(format, args...)
		if counted[what]++; counted[what] == 1 {
			t.Errorf("%s: %s; %s after the fault began", what, a, a.began.Sub(s.begin))
		}
	}
	var newest *sample // the newest of the samples that ended earlier
	for _, a := range s.log.of(p, time.Time{}, time.Now()) {
		switch {
		case a.err != nil:
			fail(a, "no response")
		case !a.good() && a.status != 503 && a.status != 504 && a.status != 429 && !(a.status == 500 && o.fault.own):
			fail(a, "unexpected status %d", a.status)
		case a.status == 503 && !a.retryAfter && p.serves != written:
			fail(a, "503 without Retry-After")
		}
		if a.took > hangs {
			fail(a, "the request took too long")
		}
		if !a.good() {
			continue
		}
		if late := s.staleness(a); !a.marked && late > tooOld() {
			fail(a, "%s stale, but not marked", late)
		} else if a.marked && late > a.age*9/8+tooOld() { // Age is exact to an eighth
			fail(a, "%s stale, but Age is only %s", late.Round(time.Second), a.age)
		}
		if newest != nil && a.version < newest.version && a.began.After(newest.ended()) {
			fail(a, "the resourceVersion went back from %d to %d", newest.version, a.version)
		}
		if newest == nil || a.version > newest.version {
			newest = a
		}
		if p.serves == fromUpstream && a.version != 0 && a.version < s.writer.upTo(a.began) {
			fail(a, "a strict read at resourceVersion %d misses the acknowledged write %d", a.version, s.writer.upTo(a.began))
		}
	}
}

// checkCreated verifies at kube-apiserver that each object was created, or not, as the response to
// its creation said.
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
				t.Errorf("%s: the response was 201, but the object does not exist", a.request.name)
			case a.status == 503 && a.retryAfter && there:
				t.Errorf("%s: the object exists, but the response asks to retry: %s", a.request.name, a)
			}
		}
	}
}

// checkWatches compares the open watches with the history in etcd, once they have caught up.
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
				return fmt.Errorf("the watch is at version %d, the last event has version %d: %v", at, last, w.ended())
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

// during summarizes the responses to some probes while the fault lasted.
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

// code returns the status of a response, with a star if the response is marked as stale.
func (a *sample) code() string {
	switch {
	case a.err != nil:
		return "none"
	case a.marked:
		return fmt.Sprint(a.status, "\\*")
	}
	return fmt.Sprint(a.status)
}

// class rounds a duration up to a class that does not depend on the speed of the machine.
func class(d time.Duration) string {
	for _, limit := range []time.Duration{time.Second, 3 * time.Second, 12 * time.Second, 30 * time.Second} {
		if d <= limit {
			return fmt.Sprintf("≤ %.0f s", limit.Seconds())
		}
	}
	return "> 30 s"
}

// slowest returns the longest recovery, or one that failed.
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
