package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/watchmux"
)

// An aggregated API server may respond to each user differently: it learns the user (X-Remote-User)
// and need not decide by RBAC. The gateway's permissions there say nothing about those of others. So
// requests for a group version that an APIService delegates to another server (spec.service) are
// forwarded as the client, even reads without a resourceVersion, unless the configuration names the
// group.
//
// While the APIServices are not known, only resources that are certainly the cluster's own are cached:
// kinds that are built into kube-apiserver, and custom resources.

// apiServiceRetry is the time between attempts to watch the APIServices.
const apiServiceRetry = 10 * time.Second

// APIServices is the resource of the APIServices.
var APIServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}

var errServerChanged = errors.New("another server serves the group version now")

// apiServices has which servers serve the group versions. Resources.mu guards it.
type apiServices struct {
	// elsewhere has the group versions of aggregated API servers, and the JSON of their
	// spec.service. They count as such until an APIService says otherwise.
	elsewhere map[schema.GroupVersion]string
	// local has the group versions with an APIService without a service. It is empty while the
	// APIServices are not watched.
	local map[schema.GroupVersion]bool
	// trusted are the groups of aggregated API servers that may be cached.
	trusted map[string]bool
}

func newAPIServices(trusted []string) apiServices {
	s := apiServices{
		elsewhere: make(map[schema.GroupVersion]string), local: make(map[schema.GroupVersion]bool), trusted: make(map[string]bool),
	}
	for _, group := range trusted {
		s.trusted[group] = true
	}
	return s
}

// mayCache reports whether gv may be cached. itself is true if gv is certainly the cluster's own unless
// an APIService says otherwise.
func (s *apiServices) mayCache(gv schema.GroupVersion, itself bool) bool {
	return s.trusted[gv.Group] || !s.isElsewhere(gv, itself)
}

// mayCacheCustom reports whether the definitions of gv describe what is served.
func (s *apiServices) mayCacheCustom(gv schema.GroupVersion) bool {
	_, elsewhere := s.elsewhere[gv]
	return !elsewhere
}

// isElsewhere reports whether an aggregated API server may serve gv.
func (s *apiServices) isElsewhere(gv schema.GroupVersion, itself bool) bool {
	_, elsewhere := s.elsewhere[gv]
	return elsewhere || !itself && !s.local[gv]
}

// runAPIServices follows the APIServices until ctx ends. It calls tried once they were read, or could
// not be, for the first time.
func (r *Resources) runAPIServices(ctx context.Context, tried func()) {
	defer tried()
	Retry(ctx, apiServiceRetry, func() (followed bool, err error) {
		err = r.followAPIServices(ctx, func() {
			tried()
			followed = true
		})
		tried()
		if ctx.Err() == nil {
			r.forgetAPIServices()
		}
		return followed, err
	}, func(err error) {
		r.log.Warn("APIServices are not watched, retrying; only built-in and custom resources are cached", "error", err)
	})
}

// followAPIServices applies all APIServices, calls read, and applies their changes until the
// collection ends.
func (r *Resources) followAPIServices(ctx context.Context, read func()) error {
	res, ok := r.Lookup(APIServices)
	if !ok {
		return ErrNotServed
	}
	c, err := r.manager.Collection(ctx, res, api.JSON)
	if err != nil {
		return err
	}
	return FollowCollection(ctx, c, func(initial []*object.Object) {
		r.setAPIServices(initial)
		read()
	}, func(d watchmux.Delivery) {
		gv, service := readAPIService(d.Object)
		if d.Type == api.Deleted {
			r.changeServer(gv, "", false)
		} else {
			r.changeServer(gv, service, service == "")
		}
	})
}

// readAPIService returns the group version of an APIService and the server that serves it: "" is the
// upstream itself. An APIService that cannot be decoded counts as that of another server.
func readAPIService(o *object.Object) (schema.GroupVersion, string) {
	var service struct {
		Spec struct {
			Group, Version string
			Service        json.RawMessage
		}
	}
	if err := json.Unmarshal(o.Raw, &service); err != nil {
		version, group, _ := strings.Cut(o.Name, ".") // as the API requires of its name
		return schema.GroupVersion{Group: group, Version: version}, err.Error()
	}
	spec := &service.Spec
	if string(spec.Service) == "null" {
		spec.Service = nil
	}
	return schema.GroupVersion{Group: spec.Group, Version: spec.Version}, string(spec.Service)
}

// setAPIServices applies all APIServices.
func (r *Resources) setAPIServices(all []*object.Object) {
	r.mu.RLock()
	gone := make(map[schema.GroupVersion]bool)
	for gv := range r.mu.servers.elsewhere {
		gone[gv] = true
	}
	r.mu.RUnlock()
	for _, o := range all {
		gv, service := readAPIService(o)
		delete(gone, gv)
		r.changeServer(gv, service, service == "")
	}
	for gv := range gone {
		r.changeServer(gv, "", false)
	}
}

// forgetAPIServices is called when the APIServices are no longer watched.
func (r *Resources) forgetAPIServices() {
	r.mu.RLock()
	local := slices.Collect(maps.Keys(r.mu.servers.local))
	r.mu.RUnlock()
	for _, gv := range local {
		r.changeServer(gv, "", false)
	}
}

// changeServer sets the server of gv: another server, the upstream itself (local), or none. It ends
// the collections of the previous server, and those of another server from now on.
func (r *Resources) changeServer(gv schema.GroupVersion, elsewhere string, local bool) {
	r.mu.Lock()
	s := &r.mu.servers
	last := s.elsewhere[gv]
	changed := last != elsewhere
	if elsewhere == "" {
		delete(s.elsewhere, gv)
	} else {
		s.elsewhere[gv] = elsewhere
	}
	if local {
		s.local[gv] = true
	} else {
		delete(s.local, gv)
	}
	var ended []schema.GroupVersionResource
	for gvr, res := range r.mu.builtin {
		if gvr.GroupVersion() != gv {
			continue
		}
		_, known := r.printers.For(gv.WithKind(res.Kind))
		if changed || !s.mayCache(gv, known) || res.Aggregated != s.isElsewhere(gv, known) {
			res.Retire()
			delete(r.mu.builtin, gvr)
			ended = append(ended, gvr)
		}
	}
	if changed {
		ended = append(ended, r.moveCustomLocked(gv, elsewhere != "")...)
	}
	r.mu.Unlock()
	for _, gvr := range ended {
		r.manager.Drop(gvr, errServerChanged)
	}
	if changed {
		r.log.Info("the server of a group version changed", "groupVersion", gv.String(), "service", elsewhere, "before", last)
	}
}

// moveCustomLocked retires or reinstates the custom resources of gv, and returns them.
func (r *Resources) moveCustomLocked(gv schema.GroupVersion, out bool) (moved []schema.GroupVersionResource) {
	for name, d := range r.mu.definitions {
		next := *d
		next.resources = slices.Clone(d.resources)
		for i, res := range next.resources {
			if res.GroupVersion() != gv {
				continue
			}
			moved = append(moved, res.GroupVersionResource)
			if out {
				res.Retire() // requests may still have it
				delete(r.mu.custom, res.GroupVersionResource)
			} else {
				next.resources[i] = res.Reinstate(time.Now())
				r.mu.custom[res.GroupVersionResource] = next.resources[i]
			}
		}
		r.mu.definitions[name] = &next
	}
	return moved
}
