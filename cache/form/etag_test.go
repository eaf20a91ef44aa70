package form

import (
	"reflect"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/cache/form/table"
	"github.com/kubeweir/kubeweir/internal/api"
)

// TestTableETagDependsOnColumns checks that the tag of a Table changes with the columns of the
// upstream's release.
func TestTableETagDependsOnColumns(t *testing.T) {
	r, err := NewRenderer(Options{DerivedBytes: 1 << 20, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	printer, err := table.NewCustomPrinter(nil)
	if err != nil {
		t.Fatal(err)
	}
	following := table.NewFollowing(printer, "1.36")
	f := r.For(&Resource{Printer: following}, api.JSON, api.Representation{Transform: api.Table}).common()
	moment := time.Now()
	before := r.tags.tag(f, &List{}, api.Identity, moment)
	if again := r.tags.tag(f, &List{}, api.Identity, moment); again != before {
		t.Errorf("%s, then %s", before, again)
	}
	following.Follow([]byte(`[{"name":"Name"}]`))
	if after := r.tags.tag(f, &List{}, api.Identity, moment); after == before {
		t.Errorf("other columns have the same tag %s", after)
	}
}

// TestETagDependsOnAllFields checks that every field that a response depends on is part of its tag.
func TestETagDependsOnAllFields(t *testing.T) {
	tags, moment := newTagger(), time.Now()
	differ := func(value any, tag func() string) {
		plain, fields := tag(), reflect.ValueOf(value).Elem()
		for i := range fields.NumField() {
			field := fields.Field(i)
			switch field.Kind() {
			case reflect.Bool:
				field.SetBool(true)
			case reflect.String:
				field.SetString("x")
			case reflect.Int:
				field.SetInt(1)
			default:
				field.SetUint(1)
			}
			if tag() == plain {
				t.Errorf("%T.%s is not in the ETag", value, fields.Type().Field(i).Name)
			}
			field.SetZero()
		}
	}
	f := base{res: &Resource{Printer: table.NewDefaultPrinter()}}
	var list List
	differ(&f.rep, func() string { return tags.tag(&f, &list, api.Identity, moment) })
	differ(&list.Scope, func() string { return tags.tag(&f, &list, api.Identity, moment) })
}
