package visible

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/internal/gaugefunc"
	"github.com/kubeweir/kubeweir/object"
	"github.com/kubeweir/kubeweir/proxy/authz"
	"github.com/kubeweir/kubeweir/proxy/review"
)

// visibleSets remember sets, and count what those take that watches follow. Equal namespaces of one user are one. It is
// safe for concurrent use.
type visibleSets struct {
	most int // names, of which a set costs some besides

	mu struct {
		sync.Mutex
		sets  map[authz.Key]*keptSet
		users map[string]*visibleUser // by name
		cost  int
	}
}

// keptSet is a set that is remembered. used is guarded by visibleSets.mu.
type keptSet struct {
	set  *Set
	used time.Time
}

// visibleUser is what one user has. It is guarded by visibleSets.mu.
type visibleUser struct {
	sets   map[authz.Key]*keptSet
	shared map[string]*sharedNamespaces // by ID
	times  map[*reviewed]int            // sets of which they are the confirmed, or the refused
	cost   int
}

// sharedNamespaces are those of some sets, which are remembered or followed.
type sharedNamespaces struct {
	namespaces *object.Namespaces
	sets       int
}

const (
	// setCost is what a set costs besides its names, and selectorBytes of its selectors, which may be long, cost as much
	// as one of those.
	setCost       = 32
	selectorBytes = 64
	// timesOf is how many names the times at which as many as one of them were confirmed cost: one of so many.
	timesOf = 4
	// refusedOf is how many names that were refused cost as many as one that is shown.
	refusedOf = 2
	// setIdle is for how long a set is kept that nobody uses.
	setIdle = 10 * time.Minute
	// evictionTries bounds the search for sets to drop.
	evictionTries = 64
)

func (t *visibleSets) init(most int) {
	t.most = most
	t.mu.sets = make(map[authz.Key]*keptSet)
	t.mu.users = make(map[string]*visibleUser)
}

// share is what one user may have.
func (t *visibleSets) share() int { return t.most / 4 }

// mostNames is how many namespaces a user may have, with the times at which they were confirmed.
func (t *visibleSets) mostNames() int { return (t.share() - setCost) * timesOf / (timesOf + 1) }

func (t *visibleSets) watch(registerer prometheus.Registerer) {
	count := func(of func() int) func() float64 {
		return func() float64 {
			t.mu.Lock()
			defer t.mu.Unlock()
			return float64(of())
		}
	}
	review.Register(registerer, gaugefunc.New(prometheus.GaugeOpts{
		Name: "kubeweir_authorization_visible_sets",
		Help: "Sets of namespaces that are remembered for rules with visibleLists: one for each user and kind of list.",
	}, count(func() int { return len(t.mu.sets) })))
	review.Register(registerer, gaugefunc.New(prometheus.GaugeOpts{
		Name: "kubeweir_authorization_visible_namespaces",
		Help: "Names of namespaces in those sets, and in those that open watches show; equal sets of a user are counted once, and each costs some names more.",
	}, count(func() int { return t.mu.cost })))
	review.RegisterLimit(registerer, "kubeweir_authorization_visible_namespaces_limit", "The most of those names; a user has a quarter of them at most.", t.most)
}

// get returns the set of key, nil if none is remembered.
func (t *visibleSets) get(key authz.Key) *Set {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := t.mu.sets[key]
	if kept == nil {
		return nil
	}
	kept.used = time.Now()
	return kept.set
}

// put remembers s, which nobody else has yet, in the place of what was known of the same. Where there is no room it does not.
func (t *visibleSets) put(s *Set) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if before := t.mu.sets[s.key]; before != nil {
		t.dropLocked(before)
	}
	if !t.enterLocked(s) {
		return
	}
	s.Namespaces = t.mu.users[s.user.GetName()].shared[s.Namespaces.ID()].namespaces
	kept := &keptSet{set: s, used: time.Now()}
	t.mu.sets[s.key] = kept
	t.mu.users[s.user.GetName()].sets[s.key] = kept
}

// hold counts what a watch of s takes, until release; false if there is no room.
func (t *visibleSets) hold(s *Set) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.enterLocked(s)
}

func (t *visibleSets) release(s *Set) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leaveLocked(s)
}

// enterLocked counts s, once there is room.
func (t *visibleSets) enterLocked(s *Set) bool {
	name, id := s.user.GetName(), s.Namespaces.ID()
	for tries := 0; ; tries++ {
		u := t.mu.users[name]
		if u == nil {
			u = &visibleUser{sets: make(map[authz.Key]*keptSet), shared: make(map[string]*sharedNamespaces), times: make(map[*reviewed]int)}
			t.mu.users[name] = u
		}
		cost := u.costOf(s)
		var full map[authz.Key]*keptSet
		switch {
		case u.cost+cost > t.share():
			full = u.sets
		case t.mu.cost+cost > t.most:
			full = t.mu.sets
		default:
			if u.shared[id] == nil {
				u.shared[id] = &sharedNamespaces{namespaces: s.Namespaces}
			}
			u.shared[id].sets++
			u.times[s.confirmed]++
			u.times[s.refused]++
			u.cost += cost
			t.mu.cost += cost
			return true
		}
		if tries == evictionTries || !t.evictLocked(full) {
			t.forgetLocked(name, u)
			return false
		}
	}
}

// costOf is what s costs besides what is counted already.
func (u *visibleUser) costOf(s *Set) int {
	cost := setCost + s.attributes.Size()/selectorBytes
	if u.shared[s.Namespaces.ID()] == nil {
		cost += s.Namespaces.Len()
	}
	if u.times[s.confirmed] == 0 {
		cost += s.Namespaces.Len() / timesOf
	}
	if u.times[s.refused] == 0 {
		cost += len(s.refused.names) / refusedOf
	}
	return cost
}

// leaveLocked is the end of what enterLocked counted.
func (t *visibleSets) leaveLocked(s *Set) {
	name, id := s.user.GetName(), s.Namespaces.ID()
	u := t.mu.users[name]
	if u.shared[id].sets--; u.shared[id].sets == 0 {
		delete(u.shared, id)
	}
	for _, of := range []*reviewed{s.confirmed, s.refused} {
		if u.times[of]--; u.times[of] == 0 {
			delete(u.times, of)
		}
	}
	cost := u.costOf(s)
	u.cost -= cost
	t.mu.cost -= cost
	t.forgetLocked(name, u)
}

func (t *visibleSets) forgetLocked(name string, u *visibleUser) {
	if u.cost == 0 {
		delete(t.mu.users, name)
	}
}

// dropLocked forgets a set.
func (t *visibleSets) dropLocked(kept *keptSet) {
	delete(t.mu.sets, kept.set.key)
	delete(t.mu.users[kept.set.user.GetName()].sets, kept.set.key)
	t.leaveLocked(kept.set)
}

// evictLocked drops, of some sets of those that are given, the one that was not used for the longest time, and those
// that nobody uses; false if there are none.
func (t *visibleSets) evictLocked(sets map[authz.Key]*keptSet) bool {
	var unused *keptSet
	seen, now := 0, time.Now()
	for _, kept := range sets { // in random order
		if now.Sub(kept.used) > setIdle {
			t.dropLocked(kept)
			return true
		}
		if unused == nil || kept.used.Before(unused.used) {
			unused = kept
		}
		if seen++; seen == review.EvictionSample {
			break
		}
	}
	if unused == nil {
		return false
	}
	t.dropLocked(unused)
	return true
}
