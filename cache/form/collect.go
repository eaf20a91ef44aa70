package form

import (
	"unsafe"

	"github.com/kubeweir/kubeweir/cache/form/derived"
	"github.com/kubeweir/kubeweir/object"
)

// collect calls one for each object, or returns the results stored in slot s of p.
func collect[T any](r *Renderer, p place, s slot, objs Objects, one func(*object.Object) (T, error)) ([]T, error) {
	all := func() ([]T, error) {
		var failed error
		values := make([]T, objs.Len())
		objs.Each(func(i int, o *object.Object) bool {
			values[i], failed = one(o)
			return failed == nil
		})
		return values, failed
	}
	// The collected values stay reachable beyond the budget. Pages and selections are not stored,
	// so at most two generations per namespace are.
	if s.scope != (Scope{Namespace: s.scope.Namespace}) {
		return all()
	}
	return derived.Once(r.derived, &s, p.id, func() ([]T, int, error) {
		values, err := all()
		var element T
		return values, len(values) * int(unsafe.Sizeof(element)), err
	})
}
