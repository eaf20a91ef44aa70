package proxy

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/gaugefunc"
	"github.com/kubeweir/kubeweir/proxy/inflight"
)

// The memory of an open request besides its slot, in bytes.
const (
	// maxLongRequestBytes bounds the memory of all long-running requests beyond ordinaryBytes each.
	maxLongRequestBytes = 128 << 20
	// ordinaryBytes is the size that a slot includes: the requests of informers have some hundred
	// bytes, with a service account token some two thousand.
	ordinaryBytes = 4 << 10
	// selectorCost is the memory per byte of a selector: its text, parsed and compiled, in the
	// reviewed attributes, and in an index.
	selectorCost = 32
)

// longRequestBytes returns how many bytes the text of a long-running request takes beyond ordinaryBytes.
func longRequestBytes(r *api.Request) int64 {
	info := r.Info()
	n := len(r.RawPath) + len(r.RawQuery) + selectorCost*selectorBytes(info)
	for _, f := range r.Header {
		n += len(f.Name) + len(f.Value)
	}
	return max(0, int64(n)-ordinaryBytes)
}

// selectorBytes returns the length of the selectors of a request. Watches by the deprecated paths
// are authorized without them, but select all the same.
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

// registerLongRequestBytes registers the metrics of this memory.
func registerLongRequestBytes(registerer prometheus.Registerer, g *inflight.Semaphore) {
	gaugefunc.Register(registerer, "kubeweir_long_request_bytes",
		"Bytes that watches, followed logs and upgraded connections hold for large requests and selectors (above 4 KiB each).", g.InUse)
	gaugefunc.Register(registerer, "kubeweir_long_request_bytes_limit",
		"Limit on those bytes; above it such requests are rejected.", g.Limit)
}
