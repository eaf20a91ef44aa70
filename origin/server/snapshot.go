package server

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kubeweir/kubeweir/origin/storage"
	"github.com/kubeweir/kubeweir/origin/storage/snapshot"
)

// maxSnapshots is the number of snapshots that are sent at a time.
const maxSnapshots = 2

// serveSnapshot sends a snapshot of the store to clients that may do everything. A response that is not
// complete is broken off.
func (b *builder) serveSnapshot(w http.ResponseWriter, req *http.Request) {
	s, header, err := b.openSnapshot(req)
	if err != nil {
		responsewriters.ErrorNegotiated(err, b.generic.Serializer, schema.GroupVersion{Version: "v1"}, w, req)
		return
	}
	defer func() { <-b.snapshots }()
	defer func() { _ = s.Close() }()
	w.Header().Set("Content-Type", snapshot.MediaType)
	each := func(f func(storage.Entry) error) error { return s.Each(req.Context(), f) }
	user, _ := apirequest.UserFrom(req.Context())
	log := b.opts.Logger.With("user", user.GetName(), "revision", header.Revision, "keys", header.Keys)
	if err := snapshot.Write(w, header, each); err != nil {
		log.Warn("snapshot not sent", "error", err)
		panic(http.ErrAbortHandler)
	}
	log.Info("snapshot sent")
}

// openSnapshot returns a snapshot and its header. The caller closes the snapshot, and frees a slot of
// b.snapshots.
func (b *builder) openSnapshot(req *http.Request) (storage.Snapshot, snapshot.Header, error) {
	h := snapshot.Header{Created: time.Now().UTC().Truncate(time.Second), Program: b.opts.Program}
	if err := b.permitsSnapshot(req); err != nil {
		return nil, h, err
	}
	engine, ok := b.opts.Engine.(storage.Snapshotter)
	if !ok {
		err := apierrors.NewGenericServerResponse(http.StatusNotImplemented, "get", schema.GroupResource{}, "", "", 0, false)
		err.ErrStatus.Message = "the objects of this server are in etcd: save them with etcdctl snapshot save"
		return nil, h, err
	}
	select {
	case b.snapshots <- struct{}{}:
	default:
		return nil, h, apierrors.NewTooManyRequests(fmt.Sprintf("%d snapshots are being sent already", maxSnapshots), 10)
	}
	s, err := engine.Snapshot(req.Context())
	if err == nil {
		h.Revision, h.Keys = s.Revision(), s.Len()
		h.Cluster, err = snapshot.ClusterUID(req.Context(), b.opts.Engine, b.opts.StoragePrefix)
		if err != nil {
			_ = s.Close()
		}
	}
	if err != nil {
		<-b.snapshots
		return nil, h, apierrors.NewServiceUnavailable(err.Error())
	}
	return s, h, nil
}

// snapshotAttributes are what a client must be permitted. Authorizers that reject by resource, such as webhooks with
// conditions, decide about Secrets, not about all resources ("*").
var snapshotAttributes = []authorizer.AttributesRecord{
	{Verb: "*", APIGroup: "*", APIVersion: "*", Resource: "*", ResourceRequest: true},
	{Verb: "list", APIVersion: "v1", Resource: "secrets", ResourceRequest: true},
	{Verb: "get", APIVersion: "v1", Resource: "secrets", ResourceRequest: true},
}

// permitsSnapshot rejects a client that may not do everything. A snapshot has all Secrets, and roles with
// all paths that are no resources ("*") are common, so the permission for the path, which was checked
// before, is not enough.
func (b *builder) permitsSnapshot(req *http.Request) error {
	if req.Method != http.MethodGet {
		return apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "snapshot"}, strings.ToLower(req.Method))
	}
	user, ok := apirequest.UserFrom(req.Context())
	if !ok {
		return apierrors.NewUnauthorized("the client is unknown")
	}
	permitted := true
	for _, a := range snapshotAttributes {
		a.User = user
		decision, _, err := b.access.Authorizer.Authorize(req.Context(), a)
		if decision != authorizer.DecisionAllow && err != nil {
			return apierrors.NewInternalError(err)
		}
		permitted = permitted && decision == authorizer.DecisionAllow
	}
	if permitted {
		return nil
	}
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "", nil)
	forbidden.ErrStatus.Message = fmt.Sprintf("forbidden: User %q cannot download a snapshot: it must be allowed all verbs of all resources in all groups, as cluster-admin is, and to get and list Secrets", user.GetName())
	return forbidden
}
