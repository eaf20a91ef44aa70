package app

import (
	"bytes"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/config"
)

// lockedBuffer is a log that is read while it is written.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// TestReloadSeesChangesOfTheStart: what is written after the start has read it, and before anybody looks, counts.
func TestReloadSeesChangesOfTheStart(t *testing.T) {
	t.Run("the configuration", func(t *testing.T) {
		s := prepareSeveral(t, []string{"a", "b"})
		s.write(entry("a"))
		s.start(func() { s.write(entry("a"), entry("b")) })
		await(t, s, "b", 200)
	})
	t.Run("a kubeconfig", func(t *testing.T) {
		s := prepareSeveral(t, []string{"a", "b"})
		s.write(entry("a"))
		file := filepath.Join(s.dir, "a.kubeconfig")
		s.start(func() {
			if err := s.upstreams["b"].Material().WriteKubeconfig(file, s.upstreams["b"].URL()); err != nil {
				t.Fatal(err)
			}
		})
		for (*s.several.members.Load())[0].origin != digest(file) && t.Context().Err() == nil {
			runtime.Gosched()
		}
	})
}

// TestReloadReportsWhatChanged: what is read and is as before is no news, unless somebody asked for it.
func TestReloadReportsWhatChanged(t *testing.T) {
	s := startSeveral(t, []string{"a", "b"}, entry("a"))
	count := func() int { return strings.Count(s.log.String(), "configuration reloaded") }
	s.reload(t.Context(), true)
	if count() != 1 {
		t.Errorf("SIGHUP is not told of: %s", s.log.String())
	}
	s.source.mu.Lock()
	s.source.seen, s.source.last = nil, s.source.look(s.source.current)
	s.source.mu.Unlock()
	s.reload(t.Context(), false)
	if count() != 1 {
		t.Errorf("what is as before is told of: %s", s.log.String())
	}
	if err := s.change(entry("a"), entry("b")); err != nil || count() != 2 {
		t.Errorf("%v: %s", err, s.log.String())
	}
}

// TestReloadContainsPanics: a panic at any step of a reload changes nothing and ends nothing but the reload.
func TestReloadContainsPanics(t *testing.T) {
	s := startSeveral(t, []string{"a", "b"}, entry("a"))
	onA := s.watch("a", "")
	before := *s.several.members.Load()
	load, cover := s.source.Load, s.source.cover
	for step, arrange := range map[string]func(){
		"reading": func() { s.source.Load = func() (*config.Gateway, error) { panic("as told") } },
		"making":  func() { s.several.recorders.audit, s.several.router = nil, nil },
		"the certificate": func() {
			s.source.cover = func(*config.Gateway) error { panic("as told") }
		},
	} {
		router, audit := s.several.router, s.several.recorders.audit
		s.write(entry("a"), entry("b"))
		s.source.mu.Lock()
		arrange()
		s.source.mu.Unlock()
		s.reload(t.Context(), true)
		s.source.mu.Lock()
		s.source.Load, s.source.cover, s.several.router, s.several.recorders.audit = load, cover, router, audit
		s.source.mu.Unlock()
		if after := *s.several.members.Load(); len(after) != 1 || after[0] != before[0] {
			t.Errorf("%s: members changed", step)
		}
		s.write(entry("a"))
		s.reload(t.Context(), true)
	}
	if got := strings.Count(s.log.String(), "configuration rejected, the settings in force stay"); got < 3 || !strings.Contains(s.log.String(), "panic contained") {
		t.Errorf("%d refusals are told of: %s", got, s.log.String())
	}
	if err := s.change(entry("a"), entry("b")); err != nil {
		t.Error(err)
	}
	await(t, s, "b", 200)
	select {
	case text := <-onA.ended:
		t.Errorf("the watch of a ended: %s", text)
	default:
	}
}

// TestReloadOfReplacedClusters: the watches of a cluster whose place another takes obey the new rules at once, although they
// may go on for the time of a drain.
func TestReloadOfReplacedClusters(t *testing.T) {
	s := startSeveral(t, []string{"a", "b"}, entry("a"))
	s.several.drainTime = time.Hour
	onA := s.watch("a", "")
	if err := s.change(entry("a", "limits: {maxColdStarts: 5}", "rules: [{users: ['*'], view: redacted}]")); err != nil {
		t.Fatal(err)
	}
	select {
	case <-onA.ended:
	case <-t.Context().Done():
		t.Error("the watch goes on by the old rules")
	case <-time.After(time.Minute):
		t.Error("the watch goes on by the old rules")
	}
}
