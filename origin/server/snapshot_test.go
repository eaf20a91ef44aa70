package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/origin/builtin/access"
	"github.com/kubeweir/kubeweir/origin/storage"
	"github.com/kubeweir/kubeweir/origin/storage/snapshot"
)

func TestSnapshot(t *testing.T) {
	_, s, config := start(t)
	code, header, body := get(t, config, api.SnapshotPath)
	if code != http.StatusOK || header.Get("Content-Type") != snapshot.MediaType {
		t.Fatalf("%d %v", code, header)
	}
	r, err := snapshot.NewReader(strings.NewReader(body))
	for err == nil {
		_, err = r.Next()
	}
	if !errors.Is(err, io.EOF) || len(r.Header().Cluster) != 36 || r.Header().Keys < 100 {
		t.Errorf("%v, %+v", err, r.Header())
	}
	for range maxSnapshots { // others are being sent
		s.snapshots <- struct{}{}
	}
	if code, header, body := get(t, config, api.SnapshotPath); code != http.StatusTooManyRequests || header.Get("Retry-After") == "" {
		t.Errorf("%d %v %s", code, header, body)
	}
	// Nobody else learns that.
	jane := listen(t, s, &user.DefaultInfo{Name: "jane", Groups: []string{user.AllAuthenticated}})
	if code, _, body := get(t, jane, api.SnapshotPath); code != http.StatusForbidden {
		t.Errorf("%d %s", code, body)
	}
}

// TestSnapshotNeedsSecrets checks that an authorizer which decides by resource is not bypassed.
func TestSnapshotNeedsSecrets(t *testing.T) {
	for _, verb := range []string{"get", "list"} {
		b := &builder{Server: &Server{access: &access.Access{Authorizer: authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			if a.GetResource() == "secrets" && a.GetVerb() == verb {
				return authorizer.DecisionDeny, "", nil
			}
			return authorizer.DecisionAllow, "", nil
		})}}}
		ctx := apirequest.WithUser(t.Context(), &user.DefaultInfo{Name: "jane"})
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, api.SnapshotPath, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.permitsSnapshot(req); !apierrors.IsForbidden(err) {
			t.Errorf("without %s: %v, want 403", verb, err)
		}
	}
}

// TestSnapshotOfAnotherStore checks that the objects of a store without snapshots are not sent.
func TestSnapshotOfAnotherStore(t *testing.T) {
	_, s, config := start(t)
	s.opts.Engine = struct{ storage.Engine }{s.opts.Engine}
	if code, _, body := get(t, config, api.SnapshotPath); code != http.StatusNotImplemented || !strings.Contains(body, "etcdctl snapshot save") {
		t.Errorf("%d %s", code, body)
	}
}
