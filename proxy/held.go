package proxy

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/internal/gaugefunc"
	"github.com/kubeweir/kubeweir/proxy/inflight"
)

// What a request costs while it is open beside its place, in bytes.
const (
	// maxHeldBytes bounds what all long-running requests keep beyond ordinaryBytes each,
	// with the bodies that are being transcoded.
	maxHeldBytes = 128 << 20
	// ordinaryBytes is what a place comes with: the requests of informers have some
	// hundred bytes, with a token of a service account some two thousand.
	ordinaryBytes = 4 << 10
	// selectorCost is how many bytes a byte of a selector is kept as: its text, parsed
	// and compiled, in the attributes that are reviewed, and in an index.
	selectorCost = 32
)

// heldBy is how many bytes a request holds beside its place: while it is answered a body
// that is transcoded, for as long as it runs also its text.
func heldBy(r *api.Request, long bool) int64 {
	n := transcodedBytes(r)
	if long {
		n += excess(r)
	}
	return n
}

// excess is how many bytes a request keeps beyond ordinaryBytes.
func excess(r *api.Request) int64 {
	info := r.Info()
	n := len(r.RawPath) + len(r.RawQuery) + selectorCost*selectorBytes(info)
	for _, f := range r.Header {
		n += len(f.Name) + len(f.Value)
	}
	return max(0, int64(n)-ordinaryBytes)
}

// selectorBytes is the length of the selectors that a request keeps. Watches by the
// deprecated paths are authorized without them, and select all the same.
func selectorBytes(info *api.RequestInfo) int {
	n := len(info.FieldSelector) + len(info.LabelSelector)
	if n > 0 || info.Verb != "watch" {
		return n
	}
	if l := info.Options.LabelSelector; l != nil && !l.Empty() {
		n += len(l.String())
	}
	if f := info.Options.FieldSelector; f != nil && !f.Empty() {
		n += len(f.String())
	}
	return n
}

// watchHeldBytes shows how much requests hold beside their places.
func watchHeldBytes(registerer prometheus.Registerer, g *inflight.Semaphore) {
	if registerer == nil {
		return
	}
	registerer.MustRegister(
		gaugefunc.New(prometheus.GaugeOpts{
			Name: "kubeweir_long_request_bytes",
			Help: "Bytes that watches, followed logs and upgraded connections keep of large requests and selectors, beyond 4 KiB each, and those of bodies in CBOR, which are transcoded.",
		}, func() float64 { return float64(g.InUse()) }),
		gaugefunc.New(prometheus.GaugeOpts{
			Name: "kubeweir_long_request_bytes_limit",
			Help: "The most bytes of that before such a request is refused.",
		}, func() float64 { return float64(g.Limit()) }),
	)
}
