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

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/form/table"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/object"
	"github.com/kubeweir/kubeweir/proxy/upstream"
	"github.com/kubeweir/kubeweir/reason"
	"github.com/kubeweir/kubeweir/watchmux"
)

// Discovery tells which resources the upstream serves.
type Discovery interface {
	// Lookup is cheap and safe for concurrent use; a miss may start a refresh.
	Lookup(gvr schema.GroupVersionResource) (upstream.ServerResource, bool)
	// Known is Lookup that never starts anything.
	Known(gvr schema.GroupVersionResource) (upstream.ServerResource, bool)
	// Refresh reads discovery anew.
	Refresh(ctx context.Context) error
}

// Printers finds the table printer of a built-in kind.
type Printers interface {
	For(gvk schema.GroupVersionKind) (table.Printer, bool)
}

// Why the collections of a custom resource end.
var (
	errDefinitionChanged = errors.New("the definition of the custom resource changed")
	errDefinitionDeleted = errors.New("the definition of the custom resource was deleted")
	errDefinitionUnknown = errors.New("the definition of the custom resource is not known")
)

var CustomResourceDefinitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// Resources knows which resources may be served from the cache and how: the
// built-in ones by discovery, unless another server serves them, custom ones by
// watching their definitions through the cache itself. A custom resource is served from the cache only while its
// definition is watched, because a changed schema changes what the upstream
// answers for objects that did not change.
//
// Lookup is safe for concurrent use; Run is called once.
type Resources struct {
	discovery Discovery
	printers  Printers
	manager   *cache.Manager
	log       *slog.Logger
	dropping  sync.WaitGroup // what removeSlowly still has to do; Run waits for it
	// dropManagedFields is that of the options.
	dropManagedFields []string
	first             chan struct{} // closed when the definitions are known, or refused, for the first time
	firstOnce         sync.Once

	mu struct {
		sync.RWMutex
		builtin map[schema.GroupVersionResource]*source.Resource
		custom  map[schema.GroupVersionResource]*source.Resource
		// definitions holds every definition, established or not: what one names
		// is never taken for a built-in resource.
		definitions map[string]*definition // by CRD name, "plural.group"
		// synced is true while the definitions are watched, refused when the upstream
		// last did not let the gateway see them.
		synced  bool
		refused bool
		servers apiServices
	}
}

// definition is what kubeweir keeps of one CustomResourceDefinition.
type definition struct {
	uid         string
	spec        string                                        // JSON
	names       apiextensionsv1.CustomResourceDefinitionNames // that were accepted
	established bool
	resources   []*source.Resource
}

// Options say what the configuration says of resources.
type Options struct {
	// AggregatedGroups may be cached although aggregated API servers serve them.
	AggregatedGroups []string
	// DropManagedFields are resources, such as pods or deployments.apps, or "*", of which
	// no managedFields are kept.
	DropManagedFields []string
}

// NewResources returns a registry; it serves no custom resource before Run has
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

// kept is the schema of what is kept of a resource's objects.
func (r *Resources) kept(gvr schema.GroupVersionResource, s *object.Schema) *object.Schema {
	if slices.Contains(r.dropManagedFields, "*") || slices.Contains(r.dropManagedFields, gvr.GroupResource().String()) {
		return s.WithoutManagedFields()
	}
	return s
}

// Lookup returns the resource if it may be served from the cache.
func (r *Resources) Lookup(gvr schema.GroupVersionResource) (*source.Resource, bool) {
	res, why := r.Find(gvr)
	return res, why == reason.NotForwarded
}

// Find is Lookup that says why the resource may not be.
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

// findBuiltin makes the resource from discovery. While the definitions are not
// known, a custom resource looks like any other in discovery; then only kinds
// that kubeweir itself knows as built in are taken.
func (r *Resources) findBuiltin(gvr schema.GroupVersionResource, synced bool) (*source.Resource, reason.Forward) {
	server, ok := r.discovery.Lookup(gvr)
	switch {
	case !ok:
		return nil, reason.UnknownResource
	case !server.Supports("list"), !server.Supports("watch"):
		return nil, reason.Unwatchable
	}
	gvr = server.GroupVersionResource // strings that keep no request alive
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
		Schema:               r.kept(gvr, object.SchemaFor(gvr)),
	}
	if known && !res.Aggregated {
		res.Printer = printer
	}
	r.mu.builtin[gvr] = res
	return res, reason.NotForwarded
}

// Known returns the group and name of a resource that the upstream serves, cached or
// not, in strings that are not the caller's. It asks nobody.
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

// Run keeps the resources in step with the APIServices, and the custom ones with their
// definitions, until ctx ends. Failures are retried; meanwhile custom resources, or
// those of groups that are not built in, are forwarded.
func (r *Resources) Run(ctx context.Context) {
	defer r.dropping.Wait()
	var servers sync.WaitGroup
	defer servers.Wait()
	tried := make(chan struct{})
	once := sync.OnceFunc(func() { close(tried) })
	r.manager.Panics().Keep(&servers, "background", func() { r.runAPIServices(ctx, once) })
	<-tried // before any custom resource is served that another server may have taken over
	for told := ""; ctx.Err() == nil; {
		err := r.follow(ctx)
		if r.forgetCustom() {
			told = ""
		}
		if ctx.Err() != nil {
			return
		}
		if apierrors.IsForbidden(err) {
			r.setRefused()
		}
		if told != err.Error() {
			told = err.Error()
			r.log.Warn("custom resource definitions are not watched, retrying; custom resources are forwarded", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// follow reads all definitions and applies their changes until the collection ends.
func (r *Resources) follow(ctx context.Context) error {
	res, why := r.findBuiltin(CustomResourceDefinitions, false)
	if why != reason.NotForwarded {
		if err := r.discovery.Refresh(ctx); err != nil {
			return err
		}
		if res, why = r.findBuiltin(CustomResourceDefinitions, false); why != reason.NotForwarded {
			// An API server without definitions has no custom resources.
			r.setSynced()
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
		r.setSynced()
	}, func(d watchmux.Delivery) {
		if d.Type == api.Deleted {
			r.removeSlowly(ctx, d.Object.Name)
		} else {
			r.apply(d.Object)
		}
		refresh()
	})
}

// refresher lets later lookups see a changed set of resources: discovery is read after every call of refresh. Nobody
// waits for that: many definitions change at once, readings are far between, and what a definition says counts at once.
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
		default: // the reading that is asked for already comes after this
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
		r.drop(next, errDefinitionChanged) // what is left of one of the same name
	}
}

// define makes the resources of one definition; none unless it is established.
// One that is being deleted counts until it is gone: its objects go first, and
// watches see them go.
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
	res.Schema = r.kept(res.GroupVersionResource, res.Schema)
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

// forget takes a definition out, so that requests for its resources are
// forwarded from now on.
func (r *Resources) forget(name string) *definition {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.mu.definitions[name]
	delete(r.mu.definitions, name)
	r.replaceLocked(last, nil)
	return last
}

// feedEnd is how long the feed of a deleted resource has to bring the last
// deletions, which happened before that of the definition; then upstream ends
// its watch and so do we.
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

// drop ends what is cached and watched under an old definition, as upstream does.
func (r *Resources) drop(last *definition, reason error) {
	if last == nil {
		return
	}
	for _, res := range last.resources {
		r.manager.Drop(res.GroupVersionResource, reason)
	}
}

// dropMissing removes definitions that went away while nobody watched.
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

func (r *Resources) setSynced() {
	r.mu.Lock()
	r.mu.synced, r.mu.refused = true, false
	r.mu.Unlock()
	r.firstOnce.Do(func() { close(r.first) })
}

// setRefused says that the definitions are not for the gateway to see: there is nothing
// to wait for.
func (r *Resources) setRefused() {
	r.mu.Lock()
	r.mu.refused = true
	r.mu.Unlock()
	r.firstOnce.Do(func() { close(r.first) })
}

// forgetCustom stops serving custom resources whose definitions nobody watches, and all
// that is not known to be built in: it may be a custom resource from now on. known tells
// that the definitions were watched until now.
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
	return r.mu.synced || r.mu.refused
}
