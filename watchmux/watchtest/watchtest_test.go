package watchtest_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/watchmux/watchtest"
)

func added(key string, rv uint64) watchtest.WireEvent {
	return watchtest.WireEvent{Type: api.Added, Key: key, RV: rv}
}

func modified(key string, rv uint64) watchtest.WireEvent {
	return watchtest.WireEvent{Type: api.Modified, Key: key, RV: rv}
}

func deleted(key string, rv uint64) watchtest.WireEvent {
	return watchtest.WireEvent{Type: api.Deleted, Key: key, RV: rv}
}

func bookmark(rv uint64) watchtest.WireEvent {
	return watchtest.WireEvent{Type: api.Bookmark, RV: rv}
}

func end(rv uint64) watchtest.WireEvent {
	return watchtest.WireEvent{Type: api.Bookmark, RV: rv, End: true}
}

func truth() watchtest.Truth {
	return watchtest.Truth{From: 1, Complete: true, Events: []watchtest.WireEvent{
		added("a", 2), added("b", 4), modified("a", 6), deleted("b", 8), added("b", 10),
	}}
}

func watch(from uint64, events ...watchtest.WireEvent) watchtest.Watch {
	return watchtest.Watch{From: from, Cut: true, Events: events}
}

func initial(events ...watchtest.WireEvent) watchtest.Watch {
	return watchtest.Watch{Initial: true, Cut: true, Events: events}
}

// TestMissingEnd checks that a watch without its last events is complete only if it was cut.
func TestMissingEnd(t *testing.T) {
	all := truth().Events
	for n := range len(all) + 1 {
		w := watch(1, all[:n]...)
		if err := watchtest.Check(w, truth()); err != nil {
			t.Errorf("%d events, cut: %v", n, err)
		}
		w.Cut = false
		err := watchtest.Check(w, truth())
		if n == len(all) && err != nil || n < len(all) && (err == nil || !strings.Contains(err.Error(), "reliable: "+all[n].String()+" is missing")) {
			t.Errorf("%d events: %v", n, err)
		}
		resumed := []watchtest.Watch{watch(1, all[:n/2]...), w}
		resumed[1].From, resumed[1].Events = resumed[0].Last(), all[n/2:n]
		if err := watchtest.Resumable(resumed, truth()); (err == nil) != (n == len(all)) {
			t.Errorf("%d events in two watches: %v", n, err)
		}
	}
	// The last event of one version.
	shared := watchtest.Truth{From: 1, Complete: true, Shared: true, Events: []watchtest.WireEvent{added("a", 2), added("b", 2)}}
	w := watch(1, added("a", 2))
	if err := watchtest.Check(w, shared); err != nil {
		t.Errorf("shared version, cut: %v", err)
	}
	if w.Cut = false; watchtest.Check(w, shared) == nil {
		t.Error("shared version: no error")
	}
}

func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		w    watchtest.Watch
		want string // in the error; "" for none
	}{
		"all":                        {watch(1, added("a", 2), added("b", 4), modified("a", 6), deleted("b", 8), added("b", 10)), ""},
		"a part":                     {watch(4, modified("a", 6), deleted("b", 8)), ""},
		"nothing":                    {watch(10), ""},
		"bookmarks":                  {watch(4, bookmark(5), modified("a", 6), bookmark(6), bookmark(7), bookmark(7), deleted("b", 8), bookmark(9)), ""},
		"initial":                    {initial(added("a", 6), added("b", 4), end(7), deleted("b", 8), bookmark(9)), ""},
		"initial with replay":        {initial(added("a", 2), added("b", 4), modified("a", 6), end(7)), ""},
		"initial, empty":             {initial(end(1), added("a", 2)), ""},
		"backwards":                  {watch(1, added("b", 4), added("a", 2)), "ordered"},
		"start inclusive":            {watch(2, added("a", 2)), "ordered"},
		"bookmark back":              {watch(4, modified("a", 6), bookmark(5)), "ordered"},
		"twice":                      {watch(1, added("a", 2), added("a", 2)), "unique"},
		"twice, initial":             {initial(added("a", 6), added("b", 4), end(5), modified("a", 6)), "unique"},
		"added again":                {watch(1, added("a", 2), added("b", 4), added("a", 6)), "consistent"},
		"deleted again":              {watch(6, deleted("b", 8), deleted("b", 10)), "consistent"},
		"modified before added":      {initial(end(1), modified("a", 2)), "consistent"},
		"missing":                    {watch(1, added("a", 2), modified("a", 6)), "reliable"},
		"missing after a bookmark":   {watch(1, added("a", 2), bookmark(9)), "reliable"},
		"invented":                   {watch(4, added("c", 5)), "reliable"},
		"wrong type":                 {watch(4, added("a", 6)), "reliable"},
		"before the truth":           {watch(0, added("a", 2)), "reliable"},
		"bookmark too high":          {watch(4, bookmark(6), modified("a", 6)), "bookmarkable"},
		"initial without end":        {initial(added("a", 2)), "initial"},
		"initial incomplete":         {initial(added("a", 6), end(7)), "initial"},
		"initial with a dead object": {initial(added("a", 6), added("b", 4), end(9)), "initial"},
		"initial, old version":       {initial(added("a", 2), added("b", 4), end(7)), "initial"},
		"initial too old":            {watchtest.Watch{From: 9, Initial: true, Events: []watchtest.WireEvent{added("a", 6), end(8)}}, "initial"},
	} {
		err := watchtest.Check(c.w, truth())
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want+":")) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

func TestResumable(t *testing.T) {
	for name, c := range map[string]struct {
		watches []watchtest.Watch
		want    string
	}{
		"one":              {[]watchtest.Watch{watch(1, added("a", 2))}, ""},
		"by event":         {[]watchtest.Watch{watch(1, added("a", 2)), watch(2), watch(2, added("b", 4))}, ""},
		"by bookmark":      {[]watchtest.Watch{watch(1, added("a", 2), bookmark(3)), watch(3, added("b", 4))}, ""},
		"list in between":  {[]watchtest.Watch{watch(1, added("a", 2)), initial(added("a", 6), end(9)), watch(9, added("b", 10))}, ""},
		"gap":              {[]watchtest.Watch{watch(1, added("a", 2)), watch(4, modified("a", 6))}, "resumable"},
		"repeated":         {[]watchtest.Watch{watch(1, added("a", 2), added("b", 4)), watch(2, added("b", 4))}, "resumable"},
		"first one broken": {[]watchtest.Watch{watch(1, added("b", 4)), watch(4)}, "watch 0"},
	} {
		err := watchtest.Resumable(c.watches, truth())
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

// TestShared checks what a watch may do if several changes have one version.
func TestShared(t *testing.T) {
	truth := watchtest.Truth{Complete: true, Shared: true, Events: []watchtest.WireEvent{
		added("a", 2), added("b", 4), added("c", 5), deleted("a", 8), deleted("b", 8), deleted("c", 8), added("d", 9),
	}}
	a, b, c, d := deleted("a", 8), deleted("b", 8), deleted("c", 8), added("d", 9)
	start := []watchtest.WireEvent{added("a", 2), added("b", 4), added("c", 5)}
	for name, tc := range map[string]struct {
		watches []watchtest.Watch
		want    string
	}{
		"all":                         {[]watchtest.Watch{watch(5, a, b, c, d)}, ""},
		"bookmark in between":         {[]watchtest.Watch{watch(5, a, bookmark(8), b, c, bookmark(8), d)}, ""},
		"all again":                   {[]watchtest.Watch{watch(5, a, b), watch(8, a, b, c, d)}, ""},
		"the rest":                    {[]watchtest.Watch{watch(5, a, b), watch(8, c, d)}, ""},
		"nothing again":               {[]watchtest.Watch{watch(5, a, b, c), watch(8, d)}, ""},
		"initial events before a bit": {[]watchtest.Watch{initial(append(slices.Clone(start[:2]), end(8), b, d)...)}, "initial"},
		"initial events in between":   {[]watchtest.Watch{initial(added("b", 4), added("c", 5), end(8), b, c, d)}, ""},
		"one is lost":                 {[]watchtest.Watch{watch(5, a, c, d)}, "reliable"},
		"the rest is lost":            {[]watchtest.Watch{watch(5, a, b), watch(8, d)}, "resumable"},
		"twice":                       {[]watchtest.Watch{watch(5, a, b, a)}, "unique"},
		"the first again":             {[]watchtest.Watch{watch(5, a, b), watch(8, a, d)}, "reliable"},
		"a bookmark too early":        {[]watchtest.Watch{watch(5, a, bookmark(9), b, c)}, "bookmarkable"},
		"back":                        {[]watchtest.Watch{watch(5, a, b, c, d, added("e", 8))}, "ordered"},
	} {
		err := watchtest.Resumable(tc.watches, truth)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		}
	}
}
