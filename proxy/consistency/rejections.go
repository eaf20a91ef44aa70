package consistency

import (
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Rejections remembers which reads the upstream refused the gateway itself. They are
// forwarded at once then, or each of them would cost the upstream two requests. The
// zero value is ready; it is safe for concurrent use.
type Rejections struct {
	mu    sync.RWMutex
	until map[Rejected]time.Time // at most maxRefusals
}

// Rejected is a verb, get or list, of a resource in a namespace, "" for all: a gateway may
// have a right in some namespaces only, and what it is refused in one must not make
// reads of the others cost the upstream a request for each client.
type Rejected struct {
	Verb      string
	Resource  schema.GroupResource
	Namespace string
}

// maxRefusals bounds the refusals that are remembered: there may be any number of
// namespaces, those in requests included that do not exist.
const maxRefusals = 1000

// refusedFor is how long a refusal counts. kube-apiserver refuses everything for a moment
// after its start, when sharing requests matters most.
const refusedFor = 5 * time.Second

func (r *Rejections) Has(what Rejected) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	until, ok := r.until[what]
	return ok && time.Now().Before(until)
}

func (r *Rejections) Add(what Rejected) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.until == nil {
		r.until = make(map[Rejected]time.Time)
	}
	what.Verb, what.Namespace = strings.Clone(what.Verb), strings.Clone(what.Namespace) // a request's own
	now := time.Now()
	for other, until := range r.until { // resources come and go
		if !now.Before(until) {
			delete(r.until, other)
		}
	}
	if len(r.until) >= maxRefusals {
		return
	}
	r.until[what] = now.Add(refusedFor)
}
