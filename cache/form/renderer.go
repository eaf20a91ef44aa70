package form

import (
	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/object"
)

// NewRenderer makes a Renderer.
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

// Close releases the memory and ends the goroutines of what is kept. A Renderer still
// works after it, slowly.
func (r *Renderer) Close() { r.derived.close() }

// List answers a list in the form f. The error says which object cannot be given in it.
func (r *Renderer) List(f Form, l *List, client Client) (*api.Response, error) {
	return r.respond(f, subject{list: l}, client)
}

// Get answers a get of an object in the form f.
func (r *Renderer) Get(f Form, o *object.Object, client Client) (*api.Response, error) {
	return r.respond(f, subject{one: o}, client)
}
