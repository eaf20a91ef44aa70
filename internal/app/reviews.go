package app

import (
	"bytes"
	"context"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kubeweir/kubeweir/proxy/authz"
)

// syncedFor is for how long an API server counts as knowing its RBAC objects after it has
// been asked. It is less than a restart takes.
const syncedFor = time.Second

// syncedReviewer believes a denial only from an API server that knows its RBAC objects.
// kube-apiserver serves before it has read them all, and denies then what a RoleBinding
// allows: open watches would end, and users be refused for as long as denials are
// remembered. A denial by such a server is returned as 503. It is safe for concurrent use.
type syncedReviewer struct {
	authz.AccessReviewer
	// synced asks the API server whether it knows its RBAC objects.
	synced func(ctx context.Context) bool
	now    func() time.Time

	mu    sync.Mutex
	until time.Time // guarded by mu: until when it counts as knowing them
}

// Create implements authz.AccessReviewer.
func (r *syncedReviewer) Create(ctx context.Context, review *authorizationv1.SubjectAccessReview, opts metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	response, err := r.AccessReviewer.Create(ctx, review, opts)
	began := r.now()
	if err != nil || response.Status.Allowed || r.knew(began) {
		return response, err
	}
	if !r.synced(ctx) {
		return nil, apierrors.NewServiceUnavailable("the API server has just started and does not know its RBAC objects yet")
	}
	r.mu.Lock()
	r.until = began.Add(syncedFor)
	r.mu.Unlock()
	return r.AccessReviewer.Create(ctx, review, opts) // the denial may be from before
}

// knew reports whether the API server counts as knowing its RBAC objects at a moment.
func (r *syncedReviewer) knew(at time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return at.Before(r.until)
}

// hasRBAC returns a function that reports whether /readyz shows synced informers. If it
// does not mention informers, or is forbidden, the function returns true: a server that lets
// the gateway create reviews has read the ClusterRoleBindings that permit /readyz, too.
func hasRBAC(client rest.Interface) func(context.Context) bool {
	return func(ctx context.Context) bool {
		var code int
		body, _ := client.Get().AbsPath("/readyz").Do(ctx).StatusCode(&code).Raw()
		return code != 0 && code != 429 && (code < 500 || !bytes.Contains(body, []byte("[-]informer-sync")))
	}
}
