package conformance

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// Servers send bookmarks about once a minute and shortly before the deadline of a watch.
const (
	idleSeconds    = 70
	bookmarkPeriod = time.Minute
	bookmarkSlack  = 10 * time.Second // allowance for a loaded machine
)

// StartIdle opens watches of objects that nobody changes at both servers. They start from a version
// before the newest, because a watch at the newest version needs no bookmark. The returned function
// waits for the end of the watches and compares the bookmarks. That takes more than a minute; other
// cases may run in the meantime.
func StartIdle(ctx context.Context, env *Env, oracle, target *Target) func(t *testing.T) {
	type idle struct {
		c     Case
		start time.Time
		at    []response // the responses of the oracle and the target, once done has a value
		done  chan error
	}
	var watches []*idle
	for name, c := range map[string]Case{
		"JSON":     watch("", "/apis/networking.k8s.io/v1/ingresses", bookmark),
		"protobuf": watch("", "/apis/networking.k8s.io/v1/ingresses", bookmark).accept(typeProto),
		"custom":   watch("", gadgets, bookmark),
		"metadata": watch("", gadgets, bookmark).accept(typeMeta),
		"table":    watch("", gadgets, bookmark).accept(typeTable),
		"selector": watch("", "/apis/networking.k8s.io/v1/ingresses", bookmark),
	} {
		c.Name = name
		c.Path += fmt.Sprintf("?watch=1&allowWatchBookmarks=true&timeoutSeconds=%d&resourceVersion=%d", idleSeconds, env.Versions.Middle)
		if name == "selector" {
			c.Path += "&labelSelector=no%3Dbody"
		}
		c.UntilEOF, c.Slow, c.Timeout = true, true, (idleSeconds+20)*time.Second
		w := &idle{c: c, start: time.Now(), done: make(chan error, 1)}
		watches = append(watches, w)
		go func() {
			var err error
			w.at, err = requestEach(ctx, c, env.Users[admin], oracle, target)
			w.done <- err
		}()
	}
	return func(t *testing.T) {
		for _, w := range watches {
			if err := <-w.done; err != nil {
				t.Errorf("%s: %v", w.c.Name, err)
				continue
			}
			for i, server := range []*Target{oracle, target} {
				checkBookmarks(t, w.c.Name+" at "+server.Name, w.start, w.at[i], env.Versions.Middle)
			}
			if len(w.at[0].frames) == 0 || len(w.at[1].frames) == 0 {
				continue // already reported
			}
			if d := diffBytes(w.at[0].frames[0].compared(), w.at[1].frames[0].compared()); d != "" {
				t.Errorf("%s: bookmark: %s", w.c.Name, d)
			}
			if d := headerDifferences(w.at[0].pages[0].Header, w.at[1].pages[0].Header); len(d) > 0 {
				t.Errorf("%s: %s", w.c.Name, lines(d))
			}
		}
	}
}

// checkBookmarks checks the events of an idle watch: only bookmarks, the first after about a
// minute, the last shortly before the end, with versions that do not decrease, and a clean end in
// time.
func checkBookmarks(t *testing.T, name string, start time.Time, a response, since int64) {
	t.Helper()
	if a.end != "EOF" {
		t.Errorf("%s: ended with %q", name, a.end)
	}
	version := uint64(since)
	for i, f := range a.frames {
		v, err := f.version()
		if f.Type != bookmark || err != nil || v < version {
			t.Errorf("%s: event %d is a %s at version %d after %d (%v)", name, i, f.Type, v, version, err)
		}
		version = v
	}
	if len(a.frames) < 2 {
		t.Errorf("%s: %d bookmarks, want one after a minute and one before the end", name, len(a.frames))
		return
	}
	if first := a.frames[0].At.Sub(start); first < bookmarkPeriod/2 || first > bookmarkPeriod+bookmarkSlack {
		t.Errorf("%s: first bookmark after %s", name, first)
	}
	if last := a.frames[len(a.frames)-1].At.Sub(start); last < idleSeconds*time.Second-bookmarkSlack/2 {
		t.Errorf("%s: last bookmark after %s, the watch lasted %d s", name, last, idleSeconds)
	}
}
