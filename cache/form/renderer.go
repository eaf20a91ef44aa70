package form

import (
	"fmt"
	"unsafe"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache/form/chunks"
	"github.com/kubeweir/kubeweir/cache/form/derived"
	"github.com/kubeweir/kubeweir/cache/form/pieces"
	"github.com/kubeweir/kubeweir/encoding/cbor"
	"github.com/kubeweir/kubeweir/object"
)

// NewRenderer returns a Renderer with the given options.
func NewRenderer(o Options) (*Renderer, error) {
	values, err := derived.New[slot](o.DerivedBytes, derivedKinds)
	if err != nil {
		return nil, err
	}
	r := &Renderer{
		now:     o.Now,
		derived: values,
		coder:   pieces.New(),
		writers: chunks.NewPool(),
		tags:    newTagger(),
		metrics: newMetrics(),

		transcoding: make(chan struct{}, yamlAtOnce),
	}
	if o.Registerer != nil {
		for _, c := range append(values.Collectors(), r.metrics.bytes) {
			if err := o.Registerer.Register(c); err != nil {
				values.Close()
				return nil, fmt.Errorf("registering metrics of rendered bodies: %w", err)
			}
		}
	}
	return r, nil
}

// Close releases the cached values and stops the cache's goroutines. The Renderer still works
// afterwards, without caching.
func (r *Renderer) Close() { r.derived.Close() }

// Get renders the response to a get in form f.
func (r *Renderer) Get(f Form, o *object.Object, client Client) (*api.Response, error) {
	c := f.common()
	c.alone = c.rep.Transform != api.Table
	return r.List(f, &List{Objects: oneObject{o}, RV: o.RV, Content: o.ID, Scope: Scope{Key: o.Key}}, client)
}

// For returns the form that renders objects stored in one encoding as rep, or nil if there is none.
func (r *Renderer) For(res *Resource, stored api.Encoding, rep api.Representation) Form {
	f := r.formOf(res, stored, rep)
	switch {
	case !rep.Redacted || f == nil:
		return f
	case stored != api.JSON || rep.Encoding == api.Protobuf:
		return nil
	}
	return &redacted{Form: f}
}

// formOf is For without redaction.
func (r *Renderer) formOf(res *Resource, stored api.Encoding, rep api.Representation) Form {
	common := base{r: r, res: res, rep: rep, enc: framings[rep.Encoding], ownMetadata: res.ownMetadata()}
	if rep.Encoding == api.CBOR {
		if stored != api.JSON || rep.Transform == api.Table {
			return nil
		}
		f := &transcoded{base: common}
		if !f.partial() && !res.Custom {
			f.shape = cbor.ShapeOf(schema.FromAPIVersionAndKind(res.APIVersion, res.Kind))
		}
		return f
	}
	switch rep.Transform {
	case api.Table:
		if rep.Encoding == api.JSON && stored == api.JSON && res.Printer != nil {
			return &tables{base: common}
		}
	case api.PartialMetadata:
		if stored == res.storedFor(rep.Encoding) {
			return &metadata{base: common}
		}
	case api.NoTransform:
		if rep.Encoding == stored {
			f := &plain{base: common, around: common.enc.Around()}
			if rep.DropManagedFields {
				f.drop = object.Codec(stored)
			}
			return f
		}
	}
	return nil
}

// collect calls one for each object, or returns the results stored in slot s of p.
func collect[T any](r *Renderer, p place, s slot, objs Objects, one func(*object.Object) (T, error)) ([]T, error) {
	all := func() ([]T, error) {
		var failed error
		values := make([]T, objs.Len())
		objs.Each(func(i int, o *object.Object) bool {
			values[i], failed = one(o)
			return failed == nil
		})
		return values, failed
	}
	// The collected values stay reachable beyond the budget. Pages and selections are not stored,
	// so at most two generations per namespace are.
	if s.scope != (Scope{Namespace: s.scope.Namespace}) {
		return all()
	}
	return derived.Once(r.derived, &s, p.id, func() ([]T, int, error) {
		values, err := all()
		var element T
		return values, len(values) * int(unsafe.Sizeof(element)), err
	})
}
