package consistency

import (
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Rejections remembers which reads the upstream rejected for the gateway itself. They are then
// forwarded at once, instead of costing the upstream two requests each. The zero value is ready; it
// is safe for concurrent use.
type Rejections struct {
	mu    sync.RWMutex
	until map[Rejected]time.Time // at most maxRejections
}

// Rejected is a verb, get or list, of a resource in a namespace, or in all with "". The gateway may
// have permissions in some namespaces only, and a rejection in one must not end the coalescing of
// reads in others.
type Rejected struct {
	Verb      string
	Resource  schema.GroupResource
	Namespace string
}

// maxRejections bounds the rejections that are remembered: requests may name any number of
// namespaces, existing or not.
const maxRejections = 1000

// rejectionTTL is how long a rejection counts. kube-apiserver rejects everything for a moment after
// its start, when coalescing matters most.
const rejectionTTL = 5 * time.Second

// Has reports whether what was rejected lately.
func (r *Rejections) Has(what Rejected) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	until, ok := r.until[what]
	return ok && time.Now().Before(until)
}

// Add records that what was rejected.
func (r *Rejections) Add(what Rejected) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.until == nil {
		r.until = make(map[Rejected]time.Time)
	}
	what.Verb, what.Namespace = strings.Clone(what.Verb), strings.Clone(what.Namespace) // of a request
	now := time.Now()
	for other, until := range r.until { // resources come and go
		if !now.Before(until) {
			delete(r.until, other)
		}
	}
	if len(r.until) >= maxRejections {
		return
	}
	r.until[what] = now.Add(rejectionTTL)
}
