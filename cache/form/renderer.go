package form

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/cache/form/chunks"
	"github.com/kubeweir/kubeweir/cache/form/derived"
	"github.com/kubeweir/kubeweir/cache/form/pieces"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/encoding/cbor"
	"github.com/kubeweir/kubeweir/internal/encoding/json"
	"github.com/kubeweir/kubeweir/internal/object"
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
		f := &transcoded{partials: partials{base: common}}
		if !f.partial() && !res.Custom {
			f.shape = cbor.ShapeOf(schema.FromAPIVersionAndKind(res.APIVersion, res.Kind))
		}
		return f
	}
	switch rep.Transform {
	case api.Table:
		if rep.Encoding == api.JSON && stored == api.JSON && res.Printer != nil {
			return &tables{partials: partials{base: common}}
		}
	case api.PartialMetadata:
		if stored == res.storedFor(rep.Encoding) {
			return &metadata{partials{base: common}}
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

// Project reduces the items of f, a form of whole objects in JSON or CBOR, to fields. Items are
// projected while they are written, because pages are small.
func Project(f Form, fields *json.Projection) { f.common().fields = fields }

// KeepOrder keeps the rows of a Table in the order of its objects, even if those of the resource
// are usually sorted.
func KeepOrder(f Form) { f.common().inOrder = true }

// transforms are the values of the label transform.
var transforms = [...]string{api.NoTransform: "none", api.Table: "table", api.PartialMetadata: "metadata"}

func newMetrics() metrics {
	m := metrics{
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubeweir_read_body_bytes_total",
			Help: "Bytes of get and list bodies served from the cache, by encoding, transform and content coding.",
		}, []string{"encoding", "transform", "coding"}),
	}
	for e := range m.bodies {
		for t := range m.bodies[e] {
			for c := range m.bodies[e][t] {
				m.bodies[e][t][c] = m.bytes.WithLabelValues(api.Encoding(e).String(), transforms[t], api.Compression(c).String())
			}
		}
	}
	return m
}

// wrote counts the n bytes of a body.
func (m *metrics) wrote(rep api.Representation, coding api.Compression, n int64) {
	m.bodies[rep.Encoding][rep.Transform][coding].Add(float64(n))
}
