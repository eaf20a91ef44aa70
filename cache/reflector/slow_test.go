package reflector_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/internal/soak"
)

// slowLink is a source over a slow link with compressed lists. While they arrive, objects change,
// pages break off and versions expire.
type slowLink struct {
	*cachetest.Source
	rng     *rand.Rand
	streams int // streaming lists
	largest int64
	broken  int
	expired int
}

// Compressed implements source.CompressedSource.
func (*slowLink) Compressed() bool { return true }

func (s *slowLink) Watch(ctx context.Context, res *source.Resource, enc api.Encoding, opts source.WatchOptions, handle func(source.Event) error) error {
	if opts.SendInitialEvents {
		s.streams++
	}
	return s.Source.Watch(ctx, res, enc, opts, handle)
}

func (s *slowLink) List(ctx context.Context, res *source.Resource, enc api.Encoding, opts source.ListOptions, visit func([]byte) error) (source.ListMeta, error) {
	if opts.Limit == 1 {
		return s.Source.List(ctx, res, enc, opts, visit)
	}
	s.largest = max(s.largest, opts.Limit)
	for range 10 {
		s.change()
		time.Sleep(time.Second)
	}
	if s.rng.IntN(4) == 0 {
		s.Compact()
	}
	breaks := s.rng.IntN(4) == 0
	meta, err := s.Source.List(ctx, res, enc, opts, func(item []byte) error {
		if breaks && s.rng.IntN(5) == 0 {
			s.broken++
			return errCut
		}
		return visit(item)
	})
	if apierrors.IsResourceExpired(err) {
		s.expired++
		var status *apierrors.StatusError
		errors.As(err, &status)
		token, decodeErr := api.DecodeContinue(opts.Continue)
		if decodeErr != nil {
			return meta, decodeErr
		}
		token.ResourceVersion = int64(s.Revision())
		status.ErrStatus.Continue = token.Encode()
	}
	return meta, err
}

// change creates, updates or deletes an object.
func (s *slowLink) change() {
	key := fmt.Sprintf("a/%03d", s.rng.IntN(400))
	there := false
	for _, o := range s.Objects(cachetest.Pods) {
		there = there || o.GetNamespace()+"/"+o.GetName() == key
	}
	switch {
	case !there:
		s.Create(cachetest.Pods, cachetest.Pod(key, ""))
	case s.rng.IntN(2) == 0:
		s.Delete(cachetest.Pods, key)
	default:
		s.Update(cachetest.Pods, cachetest.Pod(key, fmt.Sprint("n", s.rng.IntN(9))))
	}
}

// TestListOverSlowLinkCompletes checks that a list over a slow link completes, whatever expires and
// breaks off meanwhile, with the state of one version.
func TestListOverSlowLinkCompletes(t *testing.T) {
	for _, seed := range soak.Seeds(t, 4, 200) {
		bubble.Test(t, func(t *testing.T) {
			s := &slowLink{Source: cachetest.New(cachetest.PodResource()), rng: rand.New(rand.NewPCG(seed, 1))}
			for i := range 300 {
				s.Create(cachetest.Pods, cachetest.Pod(fmt.Sprintf("a/%03d", i), ""))
			}
			m := cachetest.NewManager(t, s, cache.Limits{})
			defer m.Close()
			c := cachetest.PodCollection(t, m)
			synctest.Wait()
			sameAsSource(t, c, s.Source)
			for range 50 {
				s.change()
			}
			synctest.Wait()
			sameAsSource(t, c, s.Source)
			if s.streams != 0 || s.largest > 100 {
				t.Errorf("%d streaming lists, pages of up to %d", s.streams, s.largest)
			}
			t.Logf("%d pages broke off, %d expired", s.broken, s.expired)
		})
	}
}

// sameAsSource compares a collection with its source.
func sameAsSource(t *testing.T, c *cache.Collection, s *cachetest.Source) {
	t.Helper()
	objs := s.Objects(cachetest.Pods)
	if c.Snapshot().Len() != len(objs) {
		t.Errorf("%d objects, the source has %d", c.Snapshot().Len(), len(objs))
	}
	for _, want := range objs {
		key := want.GetNamespace() + "/" + want.GetName()
		if o := c.Snapshot().Get(key); o == nil || fmt.Sprint(o.RV) != want.GetResourceVersion() {
			t.Errorf("%s: %v, the source has version %s", key, o, want.GetResourceVersion())
		}
	}
}

// quickLink is a source whose lists may be compressed but need not be.
type quickLink struct{ slowLink }

func (s *quickLink) List(ctx context.Context, res *source.Resource, enc api.Encoding, opts source.ListOptions, visit func([]byte) error) (source.ListMeta, error) {
	s.largest = max(s.largest, opts.Limit)
	return s.Source.List(ctx, res, enc, opts, visit)
}

// TestListOverFastLinkIsStreamed checks that lists over a fast link are streamed, which costs the
// upstream less than compression.
func TestListOverFastLinkIsStreamed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := &quickLink{slowLink{Source: cachetest.New(cachetest.PodResource(), cachetest.NodeResource())}}
		for i := range 300 {
			s.Create(cachetest.Pods, cachetest.Pod(fmt.Sprintf("a/%03d", i), ""))
		}
		m := cachetest.NewManager(t, s, cache.Limits{})
		defer m.Close()
		for _, res := range []*source.Resource{cachetest.PodResource(), cachetest.NodeResource()} {
			c := cachetest.Collection(t, m, res, api.JSON)
			if res.GroupVersionResource == cachetest.Pods {
				sameAsSource(t, c, s.Source)
			}
		}
		if s.streams != 1 || s.largest > 100 { // of pods; nodes are one page
			t.Errorf("%d streaming lists, pages of up to %d", s.streams, s.largest)
		}
	})
}
