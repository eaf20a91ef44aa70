package builtin

import (
	"fmt"
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
// reached, and neither managedFields, which nothing prints, nor interfaces.
type timeFinder struct {
	find func(v reflect.Value, found []*time.Time) []*time.Time
}

// newTimeFinder returns the finder for t. It fails for types with times in the
// values of a map, which cannot be changed in place.
func newTimeFinder(t reflect.Type) (*timeFinder, error) {
	return buildTimeFinder(t, map[reflect.Type]*timeFinder{})
}

// times returns the addresses of all timestamps in the object that pointer
// points to, the zero ones left out.
func (f *timeFinder) times(pointer any) []*time.Time {
	return f.find(reflect.ValueOf(pointer), nil)
}

// buildTimeFinder returns nil if no time can be reached from t. known holds the
// finders already begun, for types that contain themselves.
func buildTimeFinder(t reflect.Type, known map[reflect.Type]*timeFinder) (*timeFinder, error) {
	if f, ok := known[t]; ok {
		return f, nil
	}
	switch {
	case t == timeType:
		return &timeFinder{find: findTime}, nil
	case t == managedFieldsType:
		return nil, nil
	}
	switch t.Kind() {
	case reflect.Struct:
		return buildStructFinder(t, known)
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		f := &timeFinder{}
		known[t] = f
		elem, err := buildTimeFinder(t.Elem(), known)
		if err != nil || elem == nil {
			known[t] = nil
			return nil, err
		}
		switch t.Kind() {
		case reflect.Map:
			return nil, fmt.Errorf("%s holds times in a map", t)
		case reflect.Pointer:
			f.find = func(v reflect.Value, found []*time.Time) []*time.Time {
				if v.IsNil() {
					return found
				}
				return elem.find(v.Elem(), found)
			}
		default:
			f.find = func(v reflect.Value, found []*time.Time) []*time.Time {
				for i := range v.Len() {
					found = elem.find(v.Index(i), found)
				}
				return found
			}
		}
		return f, nil
	}
	return nil, nil
}

func buildStructFinder(t reflect.Type, known map[reflect.Type]*timeFinder) (*timeFinder, error) {
	type fieldFinder struct {
		index int
		elem  *timeFinder
	}
	f := &timeFinder{}
	known[t] = f
	var fields []fieldFinder
	for i := range t.NumField() {
		if !t.Field(i).IsExported() {
			continue
		}
		elem, err := buildTimeFinder(t.Field(i).Type, known)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.Field(i).Name, err)
		}
		if elem != nil {
			fields = append(fields, fieldFinder{i, elem})
		}
	}
	if len(fields) == 0 {
		known[t] = nil
		return nil, nil
	}
	f.find = func(v reflect.Value, found []*time.Time) []*time.Time {
		for _, field := range fields {
			found = field.elem.find(v.Field(field.index), found)
		}
		return found
	}
	return f, nil
}

func findTime(v reflect.Value, found []*time.Time) []*time.Time {
	t := v.Addr().Interface().(*time.Time)
	if t.IsZero() {
		return found
	}
	return append(found, t)
}
