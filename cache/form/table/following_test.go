package table

import (
	"errors"
	"strings"
	"testing"
)

// TestFollowing checks that different descriptions of a server's columns are shown, and that there
// are no Tables while its columns themselves differ.
func TestFollowing(t *testing.T) {
	own := NewDefaultPrinter()
	f := NewFollowing(own, "1.36.3")
	for version, want := range map[string]bool{
		`{"gitVersion":"v1.30.14"}`: true, `{"gitVersion":"v1.3.6"}`: true, `{"gitVersion":"v1.37.0-alpha.1"}`: true,
		`{"gitVersion":"v1.36.0"}`: false, `{"gitVersion":"v1.36.9-gke.1"}`: false, `{}`: false, ``: false, `a program`: false,
	} {
		if got := f.Follows(version); got != want {
			t.Errorf("%s: follows %v", version, got)
		}
	}
	object := []byte(`{"metadata":{"name":"a","creationTimestamp":"2024-01-01T00:00:00Z"}}`)
	columns := string(own.Columns())
	inOtherWords := strings.Replace(columns, `"description":"Name must`, `"description":"A name must`, 1)
	if inOtherWords == columns {
		t.Fatal("no description was changed")
	}
	for _, test := range []struct {
		name, server, shown string
		tables              bool
	}{
		{"its own", "", columns, true},
		{"in other words", inOtherWords, inOtherWords, true},
		{"with another name", strings.Replace(columns, "Created At", "Age", 1), "", false},
		{"with another priority", strings.Replace(columns, `"priority":0`, `"priority":1`, 1), "", false},
		{"one more", strings.Replace(columns, "[", `[{"name":"Secrets","type":"string"},`, 1), "", false},
		{"none", "[]", "", false},
		{"unreadable", "{", "", false},
		{"its own again", "", columns, true},
	} {
		if test.server == "" {
			f.Follow(nil)
		} else {
			f.Follow([]byte(test.server))
		}
		_, err := f.Row(object)
		_, bookmarkErr := PrintBookmark(f, object)
		if f.Traits().NoTables == test.tables || (err == nil) != test.tables || (bookmarkErr == nil) != test.tables {
			t.Errorf("%s: %+v, %v, %v", test.name, f.Traits(), err, bookmarkErr)
		}
		if !test.tables && !errors.Is(err, errOtherColumns) {
			t.Errorf("%s: %v", test.name, err)
		}
		if test.tables && string(f.Columns()) != test.shown {
			t.Errorf("%s: shows %s", test.name, f.Columns())
		}
	}
}
