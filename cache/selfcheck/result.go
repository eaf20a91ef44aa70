package selfcheck

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/api"
)

// Result is the result of a comparison.
type Result uint8

// The results.
const (
	// Unfinished means that the comparison failed, see Checked.Err.
	Unfinished Result = iota
	// Same means that no difference was found.
	Same
	// Differs means that there are Checked.Differences. The collection was stopped, its watches
	// ended with 410, and another one is being filled.
	Differs
)

// String returns the name for metrics and responses.
func (r Result) String() string { return [...]string{"unfinished", "same", "differs"}[r] }

// DifferenceKind is how an object differs.
type DifferenceKind uint8

// The kinds of difference.
const (
	// Missing means that only the upstream has the object.
	Missing DifferenceKind = iota
	// Extra means that only the cache has the object.
	Extra
	// OtherVersion means that the versions differ.
	OtherVersion
	// OtherBytes means that the same version has other bytes.
	OtherBytes
)

// String returns the name for metrics and responses.
func (k DifferenceKind) String() string {
	return [...]string{"missing", "extra", "version", "bytes"}[k]
}

// Difference is an object on which the cache and the upstream do not agree. It has no contents,
// which may be secret.
type Difference struct {
	Key              string // "namespace/name", or "name"
	Kind             DifferenceKind
	Cached, Upstream uint64 // versions, 0 if there is no object
}

// Report is the result of comparing one collection.
type Report struct {
	Resource schema.GroupVersionResource
	Encoding api.Encoding
	Result   Result
	// RV is the version of the comparison, Objects the number of objects that the upstream has
	// there, Sampled how many of them were compared byte by byte.
	RV               uint64
	Objects, Sampled int
	// Differing is the number of differences. Differences are the first of them.
	Differing   int
	Differences []Difference
	// Err is why the comparison is unfinished.
	Err  error
	Took time.Duration
	At   time.Time // the end
}
