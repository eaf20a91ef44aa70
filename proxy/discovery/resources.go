package discovery

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/form/table"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/internal/reason"
	"github.com/kubeweir/kubeweir/watchmux"
)

// Discovery finds the resources that the upstream serves.
type Discovery interface {
	// Lookup is cheap and safe for concurrent use; a miss may start a refresh.
	Lookup(gvr schema.GroupVersionResource) (ServerResource, bool)
	// Known is Lookup that never starts a refresh.
	Known(gvr schema.GroupVersionResource) (ServerResource, bool)
	// Refresh reads the discovery documents.
	Refresh(ctx context.Context) error
}

// Printers finds the table printer of a built-in kind.
type Printers interface {
	For(gvk schema.GroupVersionKind) (table.Printer, bool)
}

// Errors with which the collections of a custom resource end.
var (
	errDefinitionChanged = errors.New("the definition of the custom resource changed")
	errDefinitionDeleted = errors.New("the definition of the custom resource was deleted")
	errDefinitionUnknown = errors.New("the definition of the custom resource is not known")
)

// CustomResourceDefinitions is the resource of the definitions of custom resources.
var CustomResourceDefinitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// Resources finds the resources that may be served from the cache: built-in ones by discovery, unless
// an aggregated API server serves them, and custom ones by their definitions, which it watches through
// the cache itself. A custom resource is served from the cache only while its definition is watched,
// because a changed schema changes the upstream's responses even for objects that did not change.
//
// Its methods are safe for concurrent use; Run is called once.
type Resources struct {
	discovery         Discovery
	printers          Printers
	manager           *cache.Manager
	log               *slog.Logger
	dropping          sync.WaitGroup // goroutines of removeSlowly; Run waits for them
	dropManagedFields []string
	first             chan struct{} // closed when the definitions are known, or rejected, for the first time
	firstOnce         sync.Once

	mu struct {
		sync.RWMutex
		builtin map[schema.GroupVersionResource]*source.Resource
		custom  map[schema.GroupVersionResource]*source.Resource
		// definitions has every definition, established or not: a resource that one names is
		// never taken for a built-in one.
		definitions map[string]*definition // by CRD name, "plural.group"
		// synced is true while the definitions are watched, and refused if the gateway was last
		// forbidden to watch them.
		synced   bool
		rejected bool
		servers  apiServices
	}
}

// definition is the part of a CustomResourceDefinition that matters here.
type definition struct {
	uid         string
	spec        string                                        // JSON
	names       apiextensionsv1.CustomResourceDefinitionNames // the accepted ones
	established bool
	resources   []*source.Resource
}

// Options are settings of the configuration.
type Options struct {
	// AggregatedGroups are the groups of aggregated API servers that may be cached.
	AggregatedGroups []string
	// DropManagedFields are the resources, such as pods or deployments.apps, or "*", that are
	// cached without their managedFields.
	DropManagedFields []string
}

// NewResources returns resources of which no custom one may be served from the cache before Run has
// read the definitions.
func NewResources(discovery Discovery, printers Printers, manager *cache.Manager, log *slog.Logger, o Options) *Resources {
	r := &Resources{
		discovery: discovery, printers: printers, manager: manager, log: log, first: make(chan struct{}),
		dropManagedFields: o.DropManagedFields,
	}
	r.mu.builtin = make(map[schema.GroupVersionResource]*source.Resource)
	r.mu.custom = make(map[schema.GroupVersionResource]*source.Resource)
	r.mu.definitions = make(map[string]*definition)
	r.mu.servers = newAPIServices(o.AggregatedGroups)
	return r
}

// cachedSchema returns the schema of the cached objects of a resource.
func (r *Resources) cachedSchema(gvr schema.GroupVersionResource, s *object.Schema) *object.Schema {
	if slices.Contains(r.dropManagedFields, "*") || slices.Contains(r.dropManagedFields, gvr.GroupResource().String()) {
		return s.WithoutManagedFields()
	}
	return s
}

// Lookup returns a resource if it may be served from the cache.
func (r *Resources) Lookup(gvr schema.GroupVersionResource) (*source.Resource, bool) {
	res, why := r.Find(gvr)
	return res, why == reason.NotForwarded
}

// Find is Lookup that also returns why the resource may not be served from the cache.
func (r *Resources) Find(gvr schema.GroupVersionResource) (*source.Resource, reason.Forward) {
	r.mu.RLock()
	res := r.mu.builtin[gvr]
	if res == nil {
		res = r.mu.custom[gvr]
	}
	synced := r.mu.synced
	r.mu.RUnlock()
	if res != nil {
		return res, reason.NotForwarded
	}
	return r.findBuiltin(gvr, synced)
}

// findBuiltin finds a resource in discovery, where custom resources look like any other. While the
// definitions are not known, it therefore finds only kinds that kubeweir knows as built in.
func (r *Resources) findBuiltin(gvr schema.GroupVersionResource, synced bool) (*source.Resource, reason.Forward) {
	server, ok := r.discovery.Lookup(gvr)
	switch {
	case !ok:
		return nil, reason.UnknownResource
	case !server.Supports("list"), !server.Supports("watch"):
		return nil, reason.Unwatchable
	}
	gvr = server.GroupVersionResource // its strings do not refer to the memory of a request
	printer, known := r.printers.For(gvr.GroupVersion().WithKind(server.Kind))
	if !synced && !known {
		return nil, reason.DefinitionsUnknown
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, custom := r.mu.definitions[gvr.Resource+"."+gvr.Group]; custom {
		if !r.mu.servers.mayCacheCustom(gvr.GroupVersion()) {
			return nil, reason.Aggregated
		}
		return nil, reason.Unserved
	}
	if res := r.mu.builtin[gvr]; res != nil {
		return res, reason.NotForwarded
	}
	if !r.mu.servers.mayCache(gvr.GroupVersion(), known) {
		return nil, reason.Aggregated
	}
	res := &source.Resource{
		GroupVersionResource: gvr,
		Kind:                 server.Kind,
		Namespaced:           server.Namespaced,
		Aggregated:           r.mu.servers.isElsewhere(gvr.GroupVersion(), known),
		Schema:               r.cachedSchema(gvr, object.SchemaFor(gvr)),
	}
	if known && !res.Aggregated {
		res.Printer = printer
	}
	r.mu.builtin[gvr] = res
	return res, reason.NotForwarded
}

// Known returns the group and name of a resource that the upstream serves, cached or not, in strings
// that do not refer to gvr's. It sends no request.
func (r *Resources) Known(gvr schema.GroupVersionResource) (schema.GroupResource, bool) {
	r.mu.RLock()
	res := r.mu.builtin[gvr]
	if res == nil {
		res = r.mu.custom[gvr]
	}
	r.mu.RUnlock()
	if res != nil {
		return res.GroupResource(), true
	}
	server, ok := r.discovery.Known(gvr)
	return server.GroupResource(), ok
}

// Run follows the APIServices and the definitions of custom resources until ctx ends. It retries
// failures; meanwhile custom resources, or those of groups that are not built in, are forwarded.
func (r *Resources) Run(ctx context.Context) {
	defer r.dropping.Wait()
	var servers sync.WaitGroup
	defer servers.Wait()
	tried := make(chan struct{})
	once := sync.OnceFunc(func() { close(tried) })
	r.manager.Panics().Keep(&servers, "background", func() { r.runAPIServices(ctx, once) })
	<-tried // before a custom resource is cached that an aggregated API server may have taken over
	Retry(ctx, time.Second, func() (followed bool, err error) {
		err = r.follow(ctx)
		followed = r.forgetCustom()
		if apierrors.IsForbidden(err) {
			r.settle(false)
		}
		return followed, err
	}, func(err error) {
		r.log.Warn("custom resource definitions are not watched, retrying; custom resources are forwarded", "error", err)
	})
}

// follow applies all definitions and their changes until the collection of definitions ends.
func (r *Resources) follow(ctx context.Context) error {
	res, why := r.findBuiltin(CustomResourceDefinitions, false)
	if why != reason.NotForwarded {
		if err := r.discovery.Refresh(ctx); err != nil {
			return err
		}
		if res, why = r.findBuiltin(CustomResourceDefinitions, false); why != reason.NotForwarded {
			// An API server without definitions has no custom resources.
			r.settle(true)
			<-ctx.Done()
			return ctx.Err()
		}
	}
	c, err := r.manager.Collection(ctx, res, api.JSON)
	if err != nil {
		return fmt.Errorf("definitions: %w", err)
	}
	refresh, end := r.refresher(ctx)
	defer end()
	return FollowCollection(ctx, c, func(initial []*object.Object) {
		for _, o := range initial {
			r.apply(o)
		}
		r.dropMissing(initial)
		r.settle(true)
	}, func(d watchmux.Delivery) {
		if d.Type == api.Deleted {
			r.removeSlowly(ctx, d.Object.Name)
		} else {
			r.apply(d.Object)
		}
		refresh()
	})
}

// refresher returns a function that has discovery refreshed in the background, for later lookups of
// changed resources. Calls during a refresh share the next one, since many definitions change at
// once. Nothing waits for it: definitions themselves take effect at once.
func (r *Resources) refresher(ctx context.Context) (refresh, end func()) {
	ctx, cancel := context.WithCancel(ctx)
	changed := make(chan struct{}, 1)
	var running sync.WaitGroup
	r.manager.Panics().Keep(&running, "background", func() {
		for {
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
			if err := r.discovery.Refresh(ctx); err != nil && ctx.Err() == nil {
				r.log.Warn("discovery is not refreshed", "error", err)
			}
		}
	})
	refresh = func() {
		select {
		case changed <- struct{}{}:
		default: // the pending refresh begins after this call
		}
	}
	return refresh, func() { cancel(); running.Wait() }
}

func (r *Resources) apply(o *object.Object) {
	var crd apiextensionsv1.CustomResourceDefinition
	var raw struct{ Spec json.RawMessage }
	if err := errors.Join(json.Unmarshal(o.Raw, &crd), json.Unmarshal(o.Raw, &raw)); err != nil {
		r.log.Error("definition is not readable, its resources are forwarded", "definition", o.Name, "error", err)
		r.remove(o.Name, errDefinitionUnknown)
		return
	}
	next := r.define(&crd, string(raw.Spec))
	r.mu.Lock()
	last := r.mu.definitions[o.Name]
	if last != nil && last.uid == next.uid && last.spec == next.spec && last.established == next.established && reflect.DeepEqual(last.names, next.names) {
		r.mu.Unlock()
		return
	}
	r.mu.definitions[o.Name] = next
	if last != nil {
		for _, res := range next.resources {
			res.Changed = time.Now()
		}
	}
	r.replaceLocked(last, next)
	r.mu.Unlock()
	r.drop(last, errDefinitionChanged)
	if last == nil {
		r.drop(next, errDefinitionChanged) // collections that are left of one of the same name
	}
}

// define returns a definition with its resources, none unless it is established. A definition that is
// being deleted counts until it is gone: its objects are deleted first, and watches see that.
func (r *Resources) define(crd *apiextensionsv1.CustomResourceDefinition, spec string) *definition {
	d := &definition{uid: string(crd.UID), spec: spec, names: crd.Status.AcceptedNames}
	for _, c := range crd.Status.Conditions {
		if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
			d.established = true
		}
	}
	if !d.established {
		return d
	}
	digest := sha256.Sum256([]byte(spec))
	definition := d.uid + " " + hex.EncodeToString(digest[:])
	for i := range crd.Spec.Versions {
		if v := &crd.Spec.Versions[i]; v.Served {
			d.resources = append(d.resources, r.customResource(crd, v, definition))
		}
	}
	return d
}

func (r *Resources) customResource(crd *apiextensionsv1.CustomResourceDefinition, v *apiextensionsv1.CustomResourceDefinitionVersion, definition string) *source.Resource {
	paths := make([]string, 0, len(v.SelectableFields))
	for _, f := range v.SelectableFields {
		paths = append(paths, f.JSONPath)
	}
	res := &source.Resource{
		GroupVersionResource: schema.GroupVersionResource{Group: crd.Spec.Group, Version: v.Name, Resource: crd.Status.AcceptedNames.Plural},
		Kind:                 crd.Status.AcceptedNames.Kind,
		Namespaced:           crd.Spec.Scope == apiextensionsv1.NamespaceScoped,
		Custom:               true,
		Schema:               object.CustomSchema(paths),
		Definition:           definition,
	}
	if !res.Namespaced {
		res.Schema = res.Schema.ClusterScoped()
	}
	res.Schema = r.cachedSchema(res.GroupVersionResource, res.Schema)
	printer, err := table.NewCustomPrinter(v.AdditionalPrinterColumns)
	if err != nil {
		r.log.Warn("tables of this resource are forwarded", "resource", res.String(), "error", err)
		return res
	}
	res.Printer = printer
	return res
}

func (r *Resources) remove(name string, reason error) {
	r.drop(r.forget(name), reason)
}

// forget removes a definition. Requests for its resources are forwarded from now on.
func (r *Resources) forget(name string) *definition {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.mu.definitions[name]
	delete(r.mu.definitions, name)
	r.replaceLocked(last, nil)
	return last
}

// feedEnd is how long the collection of a deleted resource has to receive the last deletions, which
// precede that of the definition. The upstream ends its watches then, too.
const feedEnd = 2 * time.Second

func (r *Resources) removeSlowly(ctx context.Context, name string) {
	last := r.forget(name)
	r.manager.Panics().Go(&r.dropping, "background", func() {
		select {
		case <-ctx.Done():
		case <-time.After(feedEnd):
		}
		r.drop(last, errDefinitionDeleted)
	})
}

func (r *Resources) replaceLocked(last, next *definition) {
	if last != nil {
		for _, res := range last.resources {
			res.Retire()
			delete(r.mu.custom, res.GroupVersionResource)
		}
	}
	if next != nil {
		for _, res := range next.resources {
			if r.mu.servers.mayCacheCustom(res.GroupVersion()) {
				r.mu.custom[res.GroupVersionResource] = res
			}
			if builtin := r.mu.builtin[res.GroupVersionResource]; builtin != nil {
				builtin.Retire()
			}
			delete(r.mu.builtin, res.GroupVersionResource)
		}
	}
}

// drop ends the collections and watches of an old definition, as the upstream does.
func (r *Resources) drop(last *definition, reason error) {
	if last == nil {
		return
	}
	for _, res := range last.resources {
		r.manager.Drop(res.GroupVersionResource, reason)
	}
}

// dropMissing removes the definitions that were deleted while they were not watched.
func (r *Resources) dropMissing(present []*object.Object) {
	seen := make(map[string]bool, len(present))
	for _, o := range present {
		seen[o.Name] = true
	}
	r.mu.RLock()
	var gone []string
	for name := range r.mu.definitions {
		if !seen[name] {
			gone = append(gone, name)
		}
	}
	r.mu.RUnlock()
	for _, name := range gone {
		r.remove(name, errDefinitionDeleted)
	}
}

// settle records that the definitions are watched (synced), or that the gateway is forbidden to watch
// them.
func (r *Resources) settle(synced bool) {
	r.mu.Lock()
	r.mu.synced, r.mu.rejected = synced, !synced
	r.mu.Unlock()
	r.firstOnce.Do(func() { close(r.first) })
}

// forgetCustom retires the custom resources, as their definitions are no longer watched, and all
// resources that are not known to be built in: they may be custom ones from now on. known is true if
// the definitions were watched until now.
func (r *Resources) forgetCustom() (known bool) {
	r.mu.Lock()
	known, r.mu.synced = r.mu.synced, false
	var gone []*source.Resource
	for _, d := range r.mu.definitions {
		gone = append(gone, d.resources...)
	}
	r.mu.definitions = make(map[string]*definition)
	clear(r.mu.custom)
	for gvr, res := range r.mu.builtin {
		if _, known := r.printers.For(gvr.GroupVersion().WithKind(res.Kind)); !known {
			delete(r.mu.builtin, gvr)
			gone = append(gone, res)
		}
	}
	for _, res := range gone {
		res.Retire()
	}
	r.mu.Unlock()
	for _, res := range gone {
		r.manager.Drop(res.GroupVersionResource, errDefinitionUnknown)
	}
	return known
}

// WaitSynced waits until the definitions are known, or refused, for the first time, or
// ctx ends, and reports which.
func (r *Resources) WaitSynced(ctx context.Context) bool {
	select {
	case <-r.first:
		return true
	case <-ctx.Done():
		return false
	}
}

// Settled reports whether it is known how custom resources are served: from the cache,
// or, because the gateway may not see their definitions, forwarded.
func (r *Resources) Settled() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.mu.synced || r.mu.rejected
}
