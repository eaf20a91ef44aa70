package form

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/object"
)

// Options configure a Renderer.
type Options struct {
	// DerivedBytes bounds what is kept of what was derived from objects.
	DerivedBytes int64
	// Now is the clock of relative times in the tables of lists and gets.
	Now func() time.Time
	// Registerer takes the metrics; nil for none.
	Registerer prometheus.Registerer
}

// Renderer makes the bodies of gets and lists and the events of watches, and keeps what
// is derived for that. It is safe for concurrent use. Close releases what it holds.
type Renderer struct {
	now     func() time.Time
	derived *derived
	coder   *coder
	buffers *buffers
	tags    tagger
	metrics metrics
	// transcoding holds a place for each body that is being transcoded.
	transcoding chan struct{}
}

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

// Objects are those of a response, in the order of their keys. They do not change.
type Objects interface {
	Len() int
	// Each calls visit for each object with its place among them until it returns false.
	Each(visit func(i int, o *object.Object) bool)
}

// List is the answer to a list, or the beginning of a watch, before it has a form.
type List struct {
	Objects
	// Kind and APIVersion of the list (PodList, v1).
	Kind, APIVersion string
	// RV is the version that the list reports; Continue and RemainingItemCount are set
	// when objects remain after a page.
	RV                 uint64
	Continue           string
	RemainingItemCount *int64
	// Counts is what its metadata has as the member kubeweir, in the encoding of the list, nil for
	// none. Only forms in JSON and CBOR have it.
	Counts []byte
	// Shard is the selector that left these objects of all, "" for none.
	Shard string
	// Content identifies the state that the objects were selected from; with the same
	// Content and Scope two lists of a resource have the same objects.
	Content uint64
	Scope   Scope
}

// Scope says which objects of a state a list has. What is derived from one list is
// found again, or built upon, by the next one of the same Scope.
type Scope struct {
	// Namespace is "" for all. From is the first key of a page, and Limit its size, 0
	// for no pages.
	Namespace, From string
	Limit           int
	// Selectors spells them, "" for none.
	Selectors string
}

// meta is what the list says of itself.
func (l *List) meta() metav1.ListMeta {
	return metav1.ListMeta{ResourceVersion: formatRV(l.RV), Continue: l.Continue, RemainingItemCount: l.RemainingItemCount}
}

// place is where what is derived from the list is kept.
func (l *List) place(res *Resource) place {
	return place{
		slotOf: slot{resource: res, namespace: l.Scope.Namespace, from: l.Scope.From, limit: l.Scope.Limit, key: l.Scope.Selectors},
		id:     l.Content,
	}
}

// Client is what the client of a get or a list has and accepts.
type Client struct {
	// Compression of bodies above api.CompressionThreshold.
	Compression api.Compression
	// IfNoneMatch is the header of that name.
	IfNoneMatch string
}

// List answers a list in the form f. The error says which object cannot be given in it.
func (r *Renderer) List(f Form, l *List, client Client) (*api.Response, error) {
	return r.respond(f, subject{list: l}, client)
}

// Get answers a get of an object in the form f.
func (r *Renderer) Get(f Form, o *object.Object, client Client) (*api.Response, error) {
	return r.respond(f, subject{one: o}, client)
}

// formatRV is the decimal form of a version.
func formatRV(rv uint64) string { return strconv.FormatUint(rv, 10) }
