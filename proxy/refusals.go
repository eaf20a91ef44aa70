package proxy

import (
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// refusals remembers which reads the upstream refused the gateway itself. They are
// forwarded at once then, or each of them would cost the upstream two requests. The
// zero value is ready; it is safe for concurrent use.
type refusals struct {
	mu    sync.RWMutex
	until map[refusal]time.Time // at most maxRefusals
}

// refusal is a verb, get or list, of a resource in a namespace, "" for all: a gateway may
// have a right in some namespaces only, and what it is refused in one must not make
// reads of the others cost the upstream a request for each client.
type refusal struct {
	verb      string
	resource  schema.GroupResource
	namespace string
}

// maxRefusals bounds the refusals that are remembered: there may be any number of
// namespaces, those in requests included that do not exist.
const maxRefusals = 1000

// refusedFor is how long a refusal counts. kube-apiserver refuses everything for a moment
// after its start, when sharing requests matters most.
const refusedFor = 5 * time.Second

func (r *refusals) has(what refusal) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	until, ok := r.until[what]
	return ok && time.Now().Before(until)
}

func (r *refusals) add(what refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.until == nil {
		r.until = make(map[refusal]time.Time)
	}
	what.verb, what.namespace = strings.Clone(what.verb), strings.Clone(what.namespace) // a request's own
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
