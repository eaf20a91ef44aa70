package config

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// choice is a string type with few valid values.
type choice interface{ choices() []string }

var (
	durationType = reflect.TypeFor[time.Duration]()
	bytesType    = reflect.TypeFor[Bytes]()
	windowType   = reflect.TypeFor[Window]()
	choiceType   = reflect.TypeFor[choice]()
	stringType   = reflect.TypeFor[string]()
)

// expectation describes the valid values of type t.
func expectation(t reflect.Type) string {
	switch {
	case t == durationType:
		return `a duration such as "30s" or "10m"`
	case t == windowType:
		return `a duration such as "500ms", or 0`
	case t == bytesType:
		return `a size in bytes such as "64Mi" or "1000000"`
	case t.Implements(choiceType):
		return alternatives(choicesOf(t))
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.Slice:
		return "a list"
	case reflect.Struct:
		return "a group of fields"
	}
	return "a string"
}

func choicesOf(t reflect.Type) []string {
	return reflect.Zero(t).Interface().(choice).choices()
}

func alternatives(list []string) string {
	last := len(list) - 1
	return strings.Join(list[:last], ", ") + " or " + list[last]
}

// setText sets the scalar v from text. It returns false if text is not valid for the type of v.
func setText(v reflect.Value, text string) (ok bool) {
	switch t := v.Type(); {
	case t == durationType:
		d, err := time.ParseDuration(text)
		if err != nil {
			return false
		}
		v.SetInt(int64(d))
		return true
	case t == windowType:
		d, err := time.ParseDuration(text)
		if d == 0 {
			d = time.Duration(NoWindow)
		}
		v.SetInt(int64(d))
		return err == nil
	case t == bytesType:
		n, ok := parseBytes(text)
		if ok {
			v.SetInt(n)
		}
		return ok
	case t.Implements(choiceType):
		if !slices.Contains(choicesOf(t), text) {
			return false
		}
		v.SetString(text)
		return true
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
		return true
	case reflect.Bool:
		if text != "true" && text != "false" {
			return false
		}
		v.SetBool(text == "true")
		return true
	case reflect.Int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return false
		}
		v.SetInt(int64(n))
		return true
	case reflect.Float64:
		n, err := strconv.ParseFloat(text, 32)
		if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
			return false
		}
		v.SetFloat(n)
		return true
	}
	panic(fmt.Sprintf("config: no scalar of type %v", v.Type()))
}

// parseBytes reads a quantity that is a whole number of bytes.
func parseBytes(text string) (int64, bool) {
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, false
	}
	n := q.Value() // rounded
	return n, q.CmpInt64(n) == 0
}

// getText formats a scalar or a list of strings as a flag value.
func getText(v reflect.Value) string {
	if list, ok := v.Interface().([]string); ok {
		return strings.Join(list, ",")
	}
	if v.Type() == durationType {
		return durationText(time.Duration(v.Int()))
	}
	return fmt.Sprint(v.Interface())
}

// durationText writes "10m" where time.Duration writes "10m0s".
func durationText(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
