package authz

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"sync"
	"time"

	"github.com/kubeweir/kubeweir/proxy/authn"
	"github.com/kubeweir/kubeweir/proxy/review"
)

// lastWords remember what the upstream decided last, for the time in which it cannot be
// asked. Of users, by their names, none can push out the words to another who has fewer. It
// is safe for concurrent use.
type lastWords struct {
	max int
	mu  struct {
		sync.RWMutex
		words map[Key]*lastWord   // at most max
		users map[string]*wordsTo // those with words, or forgotten ones
		// forgotten is as that of wordsTo, for users without any word left.
		forgotten time.Time
	}
}

// wordsTo are the words to one user, whichever credentials they came with.
type wordsTo struct {
	name    string
	words   map[Key]*lastWord
	refused map[matter]map[*lastWord]struct{}
	// forgotten is until when a refusal would count that had to make room.
	forgotten time.Time
}

// matter is what an action is about, whichever action, version, object and namespace.
type matter struct{ group, resource, subresource, path string }

func matterOf(a *Attributes) matter {
	return matter{brief(a.APIGroup), brief(a.Resource), brief(a.Subresource), brief(a.Path)}
}

// brief stands for a string, in few bytes.
func brief(s string) string {
	if len(s) <= maxBrief {
		return s
	}
	hash := sha256.Sum256([]byte(s))
	return hex.EncodeToString(hash[:])
}

const maxBrief = 256

// lastWord is immutable.
type lastWord struct {
	to  *wordsTo
	key Key
	// attributes are those of the key; where it has a digest of them, what matterOf looks at
	// alone, and that briefly: the client chooses how large they are.
	attributes  Attributes
	decision    Decision
	said, until time.Time
}

func newLastWords(most int) *lastWords {
	w := &lastWords{max: max(1, most)}
	w.mu.words = make(map[Key]*lastWord)
	w.mu.users = make(map[string]*wordsTo)
	return w
}

// get returns the last word that still counts.
func (w *lastWords) get(key Key) (Decision, bool) {
	w.mu.RLock()
	word := w.mu.words[key]
	w.mu.RUnlock()
	if word == nil || !time.Now().Before(word.until) {
		return Decision{}, false
	}
	return word.decision, true
}

// put replaces the last word to a user of that name about what attributes say, which are
// nobody else's memory. It reports whether it says something else.
func (w *lastWords) put(name string, key Key, attributes *Attributes, d Decision, said, until time.Time) (news bool) {
	word := &lastWord{key: key, attributes: *attributes, decision: d, said: said, until: until}
	if key.large != (authn.Digest{}) {
		about := matterOf(attributes)
		word.attributes = Attributes{
			ResourceRequest: attributes.ResourceRequest,
			APIGroup:        about.group, Resource: about.resource, Subresource: about.subresource, Path: about.path,
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	to := w.toLocked(name)
	last := w.mu.words[key]
	switch {
	case last != nil:
		w.dropLocked(last)
	case len(w.mu.words) >= w.max:
		w.makeRoomLocked(to)
	}
	word.to = to
	w.mu.words[key], to.words[key] = word, word
	if !d.Allowed {
		about := matterOf(attributes)
		if to.refused[about] == nil {
			to.refused[about] = make(map[*lastWord]struct{})
		}
		to.refused[about][word] = struct{}{}
	}
	return last == nil || last.decision.Allowed != d.Allowed || last.decision.Generation != d.Generation
}

// toLocked are the words to a user.
func (w *lastWords) toLocked(name string) *wordsTo {
	to := w.mu.users[name]
	if to == nil {
		to = &wordsTo{name: name, words: make(map[Key]*lastWord), refused: make(map[matter]map[*lastWord]struct{})}
		w.mu.users[name] = to
	}
	return to
}

// dropLocked forgets a word.
func (w *lastWords) dropLocked(word *lastWord) {
	to := word.to
	delete(w.mu.words, word.key)
	delete(to.words, word.key)
	about := matterOf(&word.attributes)
	if delete(to.refused[about], word); len(to.refused[about]) == 0 {
		delete(to.refused, about)
	}
}

// makeRoomLocked drops a word that counts no more, or one to whoever has most, who may be
// to: a permission rather than a refusal, an old one rather than a new one.
func (w *lastWords) makeRoomLocked(to *wordsTo) {
	word := w.leastLocked(to)
	from := word.to
	if !word.decision.Allowed {
		from.forgotten = later(from.forgotten, word.until)
	}
	w.dropLocked(word)
	if len(from.words) == 0 && from != to {
		delete(w.mu.users, from.name)
		w.mu.forgotten = later(w.mu.forgotten, from.forgotten)
	}
}

func (w *lastWords) leastLocked(to *wordsTo) (least *lastWord) {
	now, seen, most := time.Now(), 0, to
	for _, word := range w.mu.words { // in random order: who has most is met first
		if !now.Before(word.until) {
			return word
		}
		if len(word.to.words) > len(most.words) {
			most = word.to
		}
		if seen++; seen == review.EvictionSample {
			break
		}
	}
	seen = 0
	for _, word := range most.words {
		if least == nil || word.lessThan(least) {
			least = word
		}
		if seen++; seen == review.EvictionSample {
			break
		}
	}
	return least
}

// lessThan tells which of two words makes room for others.
func (l *lastWord) lessThan(other *lastWord) bool {
	if l.decision.Allowed != other.decision.Allowed {
		return l.decision.Allowed
	}
	return l.until.Before(other.until)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// refuse tells that rules must not decide what a says, whatever they grant, because the
// upstream refused last what that may be a part of, or the other way round: another action
// on the same in the same namespace, by whichever credentials of the user; or there, if a is
// of all namespaces. What was refused of all namespaces tells nothing of a single one if
// rules would have refused it, too: grants tells that.
func (w *lastWords) refuse(name string, a *Attributes, grants func(Attributes) bool) bool {
	now := time.Now()
	var everywhere []Attributes
	w.mu.RLock()
	to := w.mu.users[name]
	refused := now.Before(w.mu.forgotten) || to != nil && now.Before(to.forgotten)
	if to != nil && !refused {
		for word := range to.refused[matterOf(a)] {
			switch {
			case !now.Before(word.until):
			case a.Namespace == "", a.Namespace == word.attributes.Namespace, word.key.large != (authn.Digest{}):
				refused = true
			case word.attributes.Namespace == "":
				everywhere = append(everywhere, word.attributes)
			}
		}
	}
	w.mu.RUnlock()
	return refused || slices.ContainsFunc(everywhere, grants)
}

// drop forgets everything but until when refusals would have counted, so that rules do not grant
// before that what was refused.
func (w *lastWords) drop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, to := range w.mu.users {
		w.mu.forgotten = later(w.mu.forgotten, to.forgotten)
	}
	for _, word := range w.mu.words {
		if !word.decision.Allowed {
			w.mu.forgotten = later(w.mu.forgotten, word.until)
		}
	}
	clear(w.mu.words)
	clear(w.mu.users)
}

// clear forgets everything.
func (w *lastWords) clear() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.mu.words)
	clear(w.mu.users)
	w.mu.forgotten = time.Time{}
}

// len is the number of words, with those that count no more.
func (w *lastWords) len() int {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return len(w.mu.words)
}
