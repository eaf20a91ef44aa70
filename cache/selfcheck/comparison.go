package selfcheck

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kubeweir/kubeweir/cache/freshness"
	"github.com/kubeweir/kubeweir/cache/reflector"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
)

// A comparison takes place at one version L of the upstream.
//
//  1. The upstream lists the keys and versions of its most recent objects, in pages of one version,
//     which is L.
//  2. stateAt finds the collection's state at L. It is the latest state if that has exactly these
//     keys and versions, because the version of an object identifies its content. Otherwise it is
//     the snapshot at L, once no change up to L is missing. A watch that does not get there is
//     late, which is no difference, and is started again.
//  3. A difference counts if a second comparison, at a later version, finds it unchanged.
//  4. If all keys and versions are equal, some objects are read from the upstream at L, in the
//     collection's encoding, and compared byte by byte. Different bytes of one version count if the
//     upstream repeats them, and if it is the program from which the collection was listed: another
//     release may encode the same object differently.
//
// It follows that writes during a comparison are never among the differences. All requests are ones
// that the reflector makes as well, so no further permissions are needed.

const (
	// checkAttempts is how often a comparison starts again because the upstream or the collection
	// has forgotten a version.
	checkAttempts = 3
	// checkTimeout bounds the comparison of one collection.
	checkTimeout = 5 * time.Minute
	// watchTimeout is how long the watch may take; bookmarks come once a minute.
	watchTimeout = 75 * time.Second
	// progressInterval is the maximum time between two looks at the watch's progress.
	progressInterval = 250 * time.Millisecond
	// probeAfter is when a probe helps the watch, which learns that nothing is missing sooner than
	// from the next bookmark.
	probeAfter = time.Second
	// maxReported is how many differences are reported per collection.
	maxReported = 20
	// sampleSize is how many objects are compared byte by byte.
	sampleSize = 10
)

var (
	errMore          = errors.New("the upstream returned more objects than requested")
	errMixedVersions = errors.New("the pages of the upstream's list have different versions")
)

// round is one comparison: what the upstream listed, and the collection's state then.
type round struct {
	refs *freshness.Versions
	view *store.Snapshot
}

// comparison compares the store of a reflector with its source.
type comparison struct {
	*reflector.Reflector
	store   *store.Store
	checker *freshness.Checker
}

// Compare compares the store that f fills, and whose Checker is checker, with the upstream.
func Compare(ctx context.Context, f *reflector.Reflector, s *store.Store, checker *freshness.Checker) *Report {
	c := comparison{f, s, checker}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	began := time.Now()
	out := &Report{Resource: c.Resource.GroupVersionResource, Encoding: c.Encoding}
	var err error
	for range checkAttempts {
		if err = c.checkOnce(ctx, out); err == nil || !c.mayCheckAgain(err) {
			break
		}
	}
	out.Err, out.Took = err, time.Since(began)
	return out
}

// mayCheckAgain reports whether a comparison that ended with err is worth another attempt.
func (c comparison) mayCheckAgain(err error) bool {
	var expired *store.ExpiredError
	if errors.Is(err, reflector.ErrLate) {
		c.Log.Warn("watch lags behind the upstream, restarting it", "resourceVersion", c.store.LatestRV())
		c.Restart(reflector.ErrLate)
		return true
	}
	return errors.As(err, &expired) || source.IsExpired(err) || errors.Is(err, errMixedVersions)
}

// checkOnce is one attempt.
func (c comparison) checkOnce(ctx context.Context, out *Report) error {
	r, err := c.round(ctx)
	if err != nil {
		return err
	}
	found := r.differences()
	if len(found) > 0 {
		if r, err = c.round(ctx); err != nil {
			return err
		}
		seen := sets.New(found...)
		found = slices.DeleteFunc(r.differences(), func(d Difference) bool { return !seen.Has(d) })
	}
	out.RV, out.Objects, out.Sampled = r.refs.Meta.ResourceVersion, len(r.refs.Items), 0
	if len(found) == 0 {
		if out.Sampled, found, err = c.sample(ctx, r); err != nil {
			return err
		}
	}
	out.Result = Same
	if len(found) > 0 {
		out.Result, out.Differing, out.Differences = Differs, len(found), found[:min(len(found), maxReported)]
	}
	return nil
}

// round lists the versions at the upstream and finds the collection's state at that version.
func (c comparison) round(ctx context.Context) (*round, error) {
	refs, err := c.listVersions(ctx)
	if err != nil {
		return nil, err
	}
	v, err := c.stateAt(ctx, refs)
	return &round{refs, v}, err
}

// listVersions lists what the upstream has now, in pages of one version.
func (c comparison) listVersions(ctx context.Context) (*freshness.Versions, error) {
	held, limit := c.store.LatestRV(), c.store.Latest().Len()+freshness.MaxUnseen
	refs := &freshness.Versions{Items: make([]freshness.Version, 0, c.store.Latest().Len())}
	visit := func(key string, rv uint64) error {
		return refs.Add(key, rv, limit)
	}
	opts := source.ListOptions{Limit: reflector.DefaultPageSize}
	for first := true; first || opts.Continue != ""; first = false {
		meta, err := c.ListVersionsPage(ctx, opts, visit)
		switch {
		case errors.Is(err, freshness.ErrTooFarBehind) && !first && slices.IsSortedFunc(refs.Items, byKey):
			refs.IsPartial = true
			return refs, nil
		case err != nil:
			return nil, fmt.Errorf("listing versions: %w", err)
		case meta.ResourceVersion == 0:
			return nil, source.ErrNoVersion
		case first:
			if err := c.checker.CheckNotRewound(held, meta.ResourceVersion); err != nil {
				return nil, err
			}
			refs.Meta = meta
		case meta.ResourceVersion != refs.Meta.ResourceVersion:
			return nil, errMixedVersions
		}
		opts.Continue = meta.Continue
	}
	slices.SortFunc(refs.Items, byKey) // kube-apiserver's are sorted
	return refs, nil
}

func byKey(a, b freshness.Version) int { return cmp.Compare(a.Key, b.Key) }

// stateAt returns the collection's state at the version of refs, or a later one that has exactly
// these objects.
func (c comparison) stateAt(ctx context.Context, refs *freshness.Versions) (*store.Snapshot, error) {
	_ = c.checker.FreshAtOnce(ctx) // otherwise the loop waits for the watch
	began, probed := time.Now(), false
	for {
		v := c.store.Latest()
		switch {
		case !refs.IsPartial && refs.MatchSelection(&store.Selection{Snapshot: v, N: v.Len()}):
			return v, nil
		case c.store.IsComplete(refs.Meta.ResourceVersion):
			return c.store.AppliedAt(refs.Meta.ResourceVersion, time.Now())
		case time.Since(began) > watchTimeout:
			return nil, reflector.ErrLate
		case !probed && time.Since(began) > probeAfter:
			probed = true
			_ = c.checker.Probe(ctx) // otherwise the loop waits for the watch
			continue
		}
		// A missing change has at least the next version.
		if err := c.store.WaitFor(ctx, max(refs.Newest, v.RV()+1), progressInterval); err != nil && !store.IsTooLarge(err) {
			return nil, err
		}
	}
}

// differences compares both sides in key order.
func (r *round) differences() []Difference {
	var found []Difference
	refs := r.refs.Items
	missing := func(n int) {
		for _, ref := range refs[:n] {
			found = append(found, Difference{Key: ref.Key, Kind: Missing, Upstream: ref.RV})
		}
		refs = refs[n:]
	}
	r.view.Ascend("", "", func(o *object.Object) bool {
		for len(refs) > 0 && refs[0].Key < o.Key {
			missing(1)
		}
		switch {
		case len(refs) == 0 && r.refs.IsPartial:
			return false // the list of the upstream ends here
		case len(refs) == 0 || refs[0].Key > o.Key:
			found = append(found, Difference{Key: o.Key, Kind: Extra, Cached: o.RV})
			return true
		case refs[0].RV != o.RV:
			found = append(found, Difference{Key: o.Key, Kind: OtherVersion, Cached: o.RV, Upstream: refs[0].RV})
		}
		refs = refs[1:]
		return true
	})
	missing(len(refs))
	return found
}

// sample compares some objects byte by byte, or all objects of a small collection.
func (c comparison) sample(ctx context.Context, r *round) (n int, found []Difference, err error) {
	changed := c.Resource.Changed
	if !changed.IsZero() && time.Since(changed) < 2*source.RedefinitionTime {
		return 0, nil, nil // servers may still read the objects by different definitions
	}
	at, size := r.refs.Meta.ResourceVersion, r.view.Len()
	pieces, each := sampleSize, 1
	if size <= sampleSize {
		pieces, each = min(size, 1), size
	}
	for range pieces {
		held := r.view.At(rand.IntN(size - each + 1))
		compared, differing, err := c.compareBytes(ctx, r.view, at, held.Key, each)
		switch {
		case source.IsRejected(err):
			return n, found, nil // for example, it accepts only its own tokens
		case err != nil:
			return n, found, err
		}
		n += compared
		found = append(found, differing...)
	}
	return n, found, nil
}

// compareBytes compares up to n objects, beginning with key, with those of the upstream at a
// version.
func (c comparison) compareBytes(ctx context.Context, v *store.Snapshot, at uint64, key string, n int) (compared int, found []Difference, err error) {
	objs, err := c.listAt(ctx, v.PageToken(at, key), n)
	if err != nil {
		return 0, nil, err
	}
	var other []*object.Object
	for _, o := range objs {
		held := v.Get(o.Key)
		if held == nil || held.RV != o.RV {
			continue
		}
		compared++
		if !bytes.Equal(held.Raw, o.Raw) {
			other = append(other, o)
			found = append(found, Difference{Key: o.Key, Kind: OtherBytes, Cached: o.RV, Upstream: o.RV})
		}
	}
	for _, o := range other {
		if repeated, err := c.repeats(ctx, v.PageToken(at, o.Key), o); err != nil || !repeated {
			return compared - len(other), nil, err
		}
	}
	return compared, found, nil
}

// repeats reports whether the upstream sends the same o again and is the program from which the
// collection was listed.
func (c comparison) repeats(ctx context.Context, token api.ContinueToken, o *object.Object) (bool, error) {
	before := c.Outage.Query(ctx)
	again, err := c.listAt(ctx, token, 1)
	if err != nil || len(again) != 1 || !bytes.Equal(again[0].Raw, o.Raw) {
		return false, err
	}
	listed := c.ListedBy()
	return before == listed && c.Outage.Query(ctx) == listed, nil
}

// listAt lists up to n objects of a page, at the version of its token.
func (c comparison) listAt(ctx context.Context, token api.ContinueToken, n int) ([]*object.Object, error) {
	var objs []*object.Object
	meta, err := c.Source.List(ctx, c.Resource, c.Encoding, source.ListOptions{Limit: int64(n), Continue: token.Encode()}, func(raw []byte) error {
		if len(objs) == n {
			return errMore
		}
		o, err := c.Decode(raw)
		objs = append(objs, o)
		return err
	})
	if err == nil && meta.ResourceVersion != uint64(token.ResourceVersion) {
		err = errMixedVersions
	}
	if err != nil {
		return nil, fmt.Errorf("sampling objects: %w", err)
	}
	return objs, nil
}

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
