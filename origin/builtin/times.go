package builtin

import (
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var (
	timeType          = reflect.TypeFor[time.Time]()
	managedFieldsType = reflect.TypeFor[metav1.ManagedFieldsEntry]()
)

// timeFinder finds the timestamps in values of one type. It follows structs,
// pointers, slices and arrays, but only those through which a time can be
// reached. It follows neither managedFields nor interfaces and maps: no printer
// shows times from there.
type timeFinder struct {
	find func(v reflect.Value, found []*time.Time) []*time.Time
}

// newTimeFinder returns the finder for t, or nil if no time can be reached
// from it.
func newTimeFinder(t reflect.Type) *timeFinder {
	return buildTimeFinder(t, map[reflect.Type]*timeFinder{})
}

// times returns the addresses of all timestamps in the object that pointer
// points to, the zero ones left out.
func (f *timeFinder) times(pointer any) []*time.Time {
	if f == nil {
		return nil
	}
	return f.find(reflect.ValueOf(pointer), nil)
}

// buildTimeFinder does the work of newTimeFinder. known holds the finders
// already begun, for types that contain themselves.
func buildTimeFinder(t reflect.Type, known map[reflect.Type]*timeFinder) *timeFinder {
	if f, ok := known[t]; ok {
		return f
	}
	switch {
	case t == timeType:
		return &timeFinder{find: findTime}
	case t == managedFieldsType:
		return nil
	}
	f := &timeFinder{}
	known[t] = f
	switch t.Kind() {
	case reflect.Struct:
		f.find = structFinder(t, known)
	case reflect.Pointer, reflect.Slice, reflect.Array:
		f.find = elementFinder(t, known)
	}
	if f.find == nil {
		known[t] = nil
		return nil
	}
	return f
}

// elementFinder is for pointers, slices and arrays. It returns nil if there is
// nothing to find.
func elementFinder(t reflect.Type, known map[reflect.Type]*timeFinder) func(reflect.Value, []*time.Time) []*time.Time {
	elem := buildTimeFinder(t.Elem(), known)
	switch {
	case elem == nil:
		return nil
	case t.Kind() == reflect.Pointer:
		return func(v reflect.Value, found []*time.Time) []*time.Time {
			if v.IsNil() {
				return found
			}
			return elem.find(v.Elem(), found)
		}
	}
	return func(v reflect.Value, found []*time.Time) []*time.Time {
		for i := range v.Len() {
			found = elem.find(v.Index(i), found)
		}
		return found
	}
}

// structFinder returns nil if there is nothing to find.
func structFinder(t reflect.Type, known map[reflect.Type]*timeFinder) func(reflect.Value, []*time.Time) []*time.Time {
	type fieldFinder struct {
		index int
		elem  *timeFinder
	}
	var fields []fieldFinder
	for i := range t.NumField() {
		if !t.Field(i).IsExported() {
			continue
		}
		if elem := buildTimeFinder(t.Field(i).Type, known); elem != nil {
			fields = append(fields, fieldFinder{i, elem})
		}
	}
	if len(fields) == 0 {
		return nil
	}
	return func(v reflect.Value, found []*time.Time) []*time.Time {
		for _, field := range fields {
			found = field.elem.find(v.Field(field.index), found)
		}
		return found
	}
}

func findTime(v reflect.Value, found []*time.Time) []*time.Time {
	t := v.Addr().Interface().(*time.Time)
	if t.IsZero() {
		return found
	}
	return append(found, t)
}
