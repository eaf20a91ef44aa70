package consistency

import (
	"maps"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// recent remembers keys for a time, and starts over at maxRecent: requests may name any number.
// The zero value is ready; it is safe for concurrent use.
type recent[K comparable] struct {
	mu    sync.RWMutex
	until map[K]time.Time // guarded by mu
}

const maxRecent = 1000

func (r *recent[K]) has(key K, now time.Time) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return now.Before(r.until[key])
}

func (r *recent[K]) add(key K, now time.Time, ttl time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.until == nil {
		r.until = make(map[K]time.Time)
	}
	maps.DeleteFunc(r.until, func(_ K, until time.Time) bool { return !now.Before(until) })
	if len(r.until) >= maxRecent {
		clear(r.until)
	}
	r.until[key] = now.Add(ttl)
}

// Rejections remembers which reads the upstream rejected for the gateway itself. They are then
// forwarded at once, instead of costing the upstream two requests each. The zero value is ready; it
// is safe for concurrent use.
type Rejections struct{ recent recent[Rejected] }

// Rejected is a verb, get or list, of a resource in a namespace, or in all with "". The gateway may
// have permissions in some namespaces only, and a rejection in one must not end the coalescing of
// reads in others.
type Rejected struct {
	Verb      string
	Resource  schema.GroupResource
	Namespace string
}

// rejectionTTL is how long a rejection counts. kube-apiserver rejects everything for a moment after
// its start, when coalescing matters most.
const rejectionTTL = 5 * time.Second

// Has reports whether what was rejected lately.
func (r *Rejections) Has(what Rejected) bool { return r.recent.has(what, time.Now()) }

// Add records that what was rejected.
func (r *Rejections) Add(what Rejected) {
	what.Verb, what.Namespace = strings.Clone(what.Verb), strings.Clone(what.Namespace) // of a request
	r.recent.add(what, time.Now(), rejectionTTL)
}
