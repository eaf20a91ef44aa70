package visible

import (
	"encoding/json"
	"encoding/pem"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// webhook is an authorizer that kube-apiserver queries before RBAC. It denies some requests in
// namespaces and has no opinion on the rest.
type webhook struct {
	server    *httptest.Server
	requested atomic.Int64

	mu     sync.Mutex
	denied map[denial]bool // guarded by mu; true: denied only without selectors
	// conditional is a user whose requests are all allowed under conditions; guarded by mu.
	conditional string
	conditions  atomic.Int64 // responses with conditions
}

// conditionalResponse is a response that depends on the object (KEP-5681): neither allowed nor
// denied.
const conditionalResponse = `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":{"allowed":false,"denied":false,
	"conditionSetChain":[{"authorizerName":"webhook","conditions":[{"id":"labels","effect":"Allow","type":"k8s.io/cel","condition":"true"}]}]}}`

// denial is a request that the webhook denies.
type denial struct{ user, verb, resource, namespace string }

// newWebhook starts a webhook that denies nothing. It ends with the process.
func newWebhook() *webhook {
	w := &webhook{}
	w.server = httptest.NewTLSServer(w)
	return w
}

// forKube returns kube-apiserver's settings for the webhook.
func (w *webhook) forKube() *realkube.Webhook {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.server.Certificate().Raw})
	return &realkube.Webhook{URL: w.server.URL, CA: ca}
}

// ServeHTTP responds to a SubjectAccessReview.
func (w *webhook) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w.requested.Add(1)
	var review authorizationv1.SubjectAccessReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	rw.Header().Set("Content-Type", "application/json")
	if w.isConditional(review.Spec.User) {
		w.conditions.Add(1)
		_, _ = io.WriteString(rw, conditionalResponse)
		return
	}
	if a := review.Spec.ResourceAttributes; a != nil {
		review.Status.Denied = w.denies(review.Spec.User, a)
	}
	_ = json.NewEncoder(rw).Encode(&review)
}

func (w *webhook) isConditional(user string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return user == w.conditional
}

// allowConditionally makes all requests of a user allowed under conditions.
func (w *webhook) allowConditionally(user string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conditional = user
}

func (w *webhook) denies(user string, a *authorizationv1.ResourceAttributes) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	whole, denied := w.denied[denial{user, a.Verb, a.Resource, a.Namespace}]
	return denied && !(whole && (a.LabelSelector != nil || a.FieldSelector != nil))
}

// deny denies a third of all requests, some of them only without selectors.
func (w *webhook) deny(random *rand.Rand) {
	denied := make(map[denial]bool)
	for _, u := range users {
		for _, res := range resources {
			for _, verb := range []string{"get", "list", "watch"} {
				for _, namespace := range namespaces {
					if random.IntN(3) == 0 {
						denied[denial{u.name, verb, res.name, namespace}] = random.IntN(2) == 0
					}
				}
			}
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.denied = denied
}

func (w *webhook) denyNothing() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.denied = nil
}
