package server

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubeweir/kubeweir/internal/api"
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

// TestSnapshotOfAnotherStore checks that the objects of a store without snapshots are not sent.
func TestSnapshotOfAnotherStore(t *testing.T) {
	_, s, config := start(t)
	s.opts.Engine = struct{ storage.Engine }{s.opts.Engine}
	if code, _, body := get(t, config, api.SnapshotPath); code != http.StatusNotImplemented || !strings.Contains(body, "etcdctl snapshot save") {
		t.Errorf("%d %s", code, body)
	}
}
