package form

import (
	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/object"
)

// NewRenderer returns a Renderer with the given options.
func NewRenderer(o Options) (*Renderer, error) {
	derived, err := newDerived(o.DerivedBytes)
	if err != nil {
		return nil, err
	}
	r := &Renderer{
		now:     o.Now,
		derived: derived,
		coder:   newCoder(),
		buffers: newBuffers(),
		tags:    newTagger(),
		metrics: newMetrics(derived),

		transcoding: make(chan struct{}, yamlAtOnce),
	}
	if o.Registerer != nil {
		if err := r.metrics.register(o.Registerer); err != nil {
			derived.close()
			return nil, err
		}
	}
	return r, nil
}

// Close releases the cached values and stops the cache's goroutines. The Renderer still works
// afterwards, without caching.
func (r *Renderer) Close() { r.derived.close() }

// List renders a list in form f. The error names the object that cannot be rendered.
func (r *Renderer) List(f Form, l *List, client Client) (*api.Response, error) {
	return r.respond(f, subject{list: l}, client)
}

// Get renders the response to a get in form f.
func (r *Renderer) Get(f Form, o *object.Object, client Client) (*api.Response, error) {
	return r.respond(f, subject{one: o}, client)
}
