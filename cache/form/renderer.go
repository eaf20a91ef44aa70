package form

import (
	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/cache/form/chunks"
	"github.com/kubeweir/kubeweir/cache/form/derived"
	"github.com/kubeweir/kubeweir/cache/form/pieces"
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
		if err := r.metrics.register(o.Registerer, values.Collectors()); err != nil {
			values.Close()
			return nil, err
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
