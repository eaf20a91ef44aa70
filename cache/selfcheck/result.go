package selfcheck

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/api"
)

// Result is what the comparison of a collection with the upstream ended with.
type Result uint8

// The results.
const (
	// Unfinished: they could not be compared, see Checked.Err.
	Unfinished Result = iota
	// Same: no difference was found.
	Same
	// Differs: see Checked.Differences. The collection was stopped, its watches ended
	// with 410, and another one is being filled.
	Differs
)

// String names the result for metrics and answers.
func (r Result) String() string { return [...]string{"unfinished", "same", "differs"}[r] }

// DifferenceKind is how an object differs.
type DifferenceKind uint8

// The kinds.
const (
	// Missing: the upstream has it, the cache has not.
	Missing DifferenceKind = iota
	// Extra: the cache has it, the upstream has not.
	Extra
	// OtherVersion: the cache has it in another version.
	OtherVersion
	// OtherBytes: the cache has other bytes of the same version.
	OtherBytes
)

// String names the kind for metrics and answers.
func (k DifferenceKind) String() string {
	return [...]string{"missing", "extra", "version", "bytes"}[k]
}

// Difference is an object that the cache and the upstream do not agree about. It has
// versions only, no contents: those may be secret.
type Difference struct {
	Key              string // "namespace/name", or "name"
	Kind             DifferenceKind
	Cached, Upstream uint64 // versions, 0 where there is no object
}

// Checked is what the check of one collection has found.
type Checked struct {
	Resource schema.GroupVersionResource
	Encoding api.Encoding
	Result   Result
	// RV is the version at which both sides were compared, Objects how many objects the
	// upstream had there, Sampled how many of them were compared byte by byte.
	RV               uint64
	Objects, Sampled int
	// Differing is the number of differences, Differences are the first of them.
	Differing   int
	Differences []Difference
	// Err is why the check is unfinished.
	Err  error
	Took time.Duration
}
