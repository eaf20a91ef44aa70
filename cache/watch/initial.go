package watch

import (
	"context"
	"sort"
	"time"

	"github.com/kubeweir/kubeweir/cache/read"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/object"
)

// A watch may start with the existing objects as ADDED events. For clients that accept compression,
// they are compressed before the watch starts, once for all clients that request the same objects,
// see form.Watch. Otherwise they are read from the snapshot while they are sent.

// pickPart selects the initial objects of a watch of a shard or of some namespaces, if that is
// cheaper than visiting all objects. It runs before Start.
func (s *stream) pickPart(ctx context.Context) {
	f := s.req.Filter
	if f == nil || f.Shard == nil && f.Within == nil {
		return
	}
	if f.Shard != nil {
		s.c.WantShard(f.Shard)
	}
	if s.initial == nil {
		return
	}
	looking := store.NewCancellation(ctx)
	objs, ok := []*object.Object(nil), true
	if f.Within != nil {
		objs = s.initial.SelectNamespaces(f, &looking)
	} else {
		objs, ok = s.initial.SelectShard(f, s.initialNamespace(), "", 0, &looking)
	}
	if ok && !looking.Seen {
		s.picked = objs
	}
}

// compressInitial compresses the initial events in the client's encoding, if that pays. It runs
// before Start.
func (s *stream) compressInitial(ctx context.Context) {
	if s.initial == nil || !s.body.CanCompress(s.req.Compression) {
		return
	}
	sel, ok := s.selectInitial(ctx)
	if !ok {
		return
	}
	if done, err := s.body.Compress(sel.FormList(s.c.ListKind()), s.req.Compression, sel.Bytes()); err != nil || !done {
		// If an object cannot be rendered, the watch reports it when it gets there.
		if sel.IsPicked {
			s.picked = sel.Objects
		}
		return
	}
	s.initial = nil
}

// selectInitial selects the initial objects. ok is false if the client has left, and for objects
// that are selected by fields (the pods of a node, one Secret), which hardly two clients have in
// common.
func (s *stream) selectInitial(ctx context.Context) (sel *read.Selection, ok bool) {
	f := s.req.Filter
	if f != nil && f.Fields != nil && !f.Fields.Empty() {
		return nil, false
	}
	sel = &read.Selection{Selection: store.Selection{Snapshot: s.initial, Namespace: s.initialNamespace()}, RV: s.initial.RV()}
	if !f.Selective() {
		sel.N = s.initial.Count(sel.Namespace)
		return sel, true
	}
	sel.IsPicked, sel.Variant = true, read.SelectorKey(f)
	if s.picked != nil {
		sel.Objects = s.picked
		return sel, true
	}
	looking := store.NewCancellation(ctx)
	s.initial.Ascend(sel.Namespace, "", func(o *object.Object) bool {
		if looking.Requested() {
			return false
		}
		if f.Matches(o) {
			sel.Objects = append(sel.Objects, o)
		}
		return true
	})
	return sel, ctx.Err() == nil
}

// deliverInitial sends the initial objects and the bookmark that ends them. ok is false if the
// stream is over.
func (s *stream) deliverInitial(sc *scratch) (ok bool) {
	for s.body.HasPieces() {
		if s.finishRevoked(sc) {
			return false
		}
		s.body.Pieces(&sc.frames)
		if s.leaving.Load() || !s.write(sc) {
			return false
		}
	}
	for s.initial != nil {
		if s.finishRevoked(sc) {
			return false
		}
		s.body.Begin(&sc.frames)
		n, more, now := 0, false, time.Now()
		var renderErr error
		s.ascendInitial(func(o *object.Object) bool {
			if s.leaving.Load() {
				return false
			}
			if !s.req.Filter.Matches(o) {
				return true
			}
			if n == initialFramesAtOnce {
				s.initKey, more = o.Key, true
				return false
			}
			n++
			renderErr = s.body.Added(&sc.frames, o, now)
			return renderErr == nil
		})
		if s.leaving.Load() {
			return false
		}
		if renderErr != nil {
			s.fail500(sc, renderErr)
			return false
		}
		if !more {
			s.initial, s.picked = nil, nil
		}
		if !s.write(sc) {
			return false
		}
	}
	if s.markEnd {
		s.markEnd = false
		return s.writeBookmark(sc, s.from, true)
	}
	return true
}

// ascendInitial calls visit for the objects that have not been sent, and perhaps for others that
// the selectors exclude.
func (s *stream) ascendInitial(visit func(*object.Object) bool) {
	if s.picked == nil {
		s.initial.Ascend(s.initialNamespace(), s.initKey, visit)
		return
	}
	first := sort.Search(len(s.picked), func(i int) bool { return s.picked[i].Key >= s.initKey })
	for _, o := range s.picked[first:] {
		if !visit(o) {
			return
		}
	}
}

func (s *stream) initialNamespace() string {
	if s.req.Filter == nil {
		return ""
	}
	return s.req.Filter.Namespace
}
