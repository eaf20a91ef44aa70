package watch

import (
	"context"
	"time"

	"github.com/kubeweir/kubeweir/cache/read"
	"github.com/kubeweir/kubeweir/cache/store"
	"github.com/kubeweir/kubeweir/internal/object"
)

// A watch may start with the existing objects as ADDED events. For clients that accept compression,
// they are compressed before the watch starts, once for all clients that request the same objects,
// see form.Watch. Otherwise they are read from the snapshot while they are sent.

// pickInitial selects the objects of view with which the watch starts; nil selects none. Objects of
// a shard or of some namespaces are looked up if that is cheaper than visiting all objects. It runs
// before Start.
func (s *stream) pickInitial(ctx context.Context, view *store.Snapshot) {
	f := s.req.Filter
	if f != nil && f.Shard != nil {
		s.c.WantShard(f.Shard)
	}
	if view == nil {
		return
	}
	sel := &read.Selection{Selection: store.Selection{Snapshot: view}, RV: view.RV()}
	if f != nil {
		sel.Namespace = f.Namespace
	}
	sel.N = view.CountFrom(sel.Namespace, "")
	s.initial = sel
	cancel := store.Cancellation{Context: ctx}
	objs, ok := []*object.Object(nil), false
	switch {
	case f == nil:
	case f.Within != nil:
		view.AscendNamespaces(f, "", cancel.Collect(&objs, f.Matches))
		ok = true
	case f.Shard != nil:
		objs, ok = view.SelectShard(f, sel.Namespace, "", 0, &cancel)
	}
	if ok && !cancel.Seen {
		sel.IsPicked, sel.Objects = true, objs
	}
}

// compressInitial compresses the initial events in the client's encoding, if that pays. It runs
// before Start.
func (s *stream) compressInitial(ctx context.Context) {
	sel := s.initial
	if sel == nil || !s.body.CanCompress(s.req.Compression) || !s.matchInitial(ctx) {
		return
	}
	done, err := s.body.Compress(sel.FormList(s.c.ListMeta()), s.req.Compression, sel.Bytes())
	if err == nil && done { // if an object cannot be rendered, the watch reports it when it gets there
		s.initial = nil
	}
}

// matchInitial reduces the initial objects to those that match the filter. It returns false if the
// client has left, and for objects that are selected by fields (the pods of a node, one Secret),
// which hardly two clients have in common.
func (s *stream) matchInitial(ctx context.Context) bool {
	f, sel := s.req.Filter, s.initial
	switch {
	case f != nil && f.Fields != nil && !f.Fields.Empty():
		return false
	case !f.Selective():
		return true
	}
	sel.Variant = read.SelectorKey(f)
	if sel.IsPicked {
		return true
	}
	var objs []*object.Object
	cancel := store.Cancellation{Context: ctx}
	sel.Each(func(_ int, o *object.Object) bool {
		if f.Matches(o) {
			objs = append(objs, o)
		}
		return !cancel.Requested()
	})
	if ctx.Err() != nil {
		return false
	}
	sel.IsPicked, sel.Objects = true, objs
	return true
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
	if s.initial != nil {
		if !s.renderInitial(sc) {
			return false
		}
		s.initial = nil // not needed while the client reads the rest
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

// renderInitial sends the initial objects, except for the last ones, whose frames it leaves in sc.
func (s *stream) renderInitial(sc *scratch) (ok bool) {
	ok = true
	n, now := 0, time.Now()
	s.body.Begin(&sc.frames)
	s.initial.Each(func(_ int, o *object.Object) bool {
		if ok = !s.leaving.Load(); !ok || !s.req.Filter.Matches(o) {
			return ok
		}
		if n == initialFramesAtOnce {
			if ok = s.write(sc) && !s.finishRevoked(sc); !ok {
				return false
			}
			s.body.Begin(&sc.frames)
			n, now = 0, time.Now()
		}
		n++
		if err := s.body.Added(&sc.frames, o, now); err != nil {
			s.fail500(sc, err)
			ok = false
		}
		return ok
	})
	return ok
}
