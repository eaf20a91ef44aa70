package clusterprofile

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// TestRetainedFields: what was kept is what was there, with what is wrong with it; a name that leads
// elsewhere as a folder is not believed.
func TestRetainedFields(t *testing.T) {
	good, bad := read(made("good", 1, "https://a")), read(made("bad", 2, "https://b"))
	bad.Access, bad.Error = nil, "it is wrong"
	text, err := json.Marshal([]Profile{good, bad})
	if err != nil {
		t.Fatal(err)
	}
	list, err := Decode(text)
	if err != nil || len(list) != 2 || list[0].digest() != good.digest() || list[1].Error != "it is wrong" {
		t.Fatalf("%+v, %v", list, err)
	}
	for i, want := range []Profile{good, bad} {
		got := list[i]
		if got.key() != want.key() || !got.Created.Equal(want.Created) || !reflect.DeepEqual(got.Access, want.Access) {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	for _, text := range []string{"", "{}", strings.Replace(string(text), `"good"`, `"../good"`, 1)} {
		if list, err := Decode([]byte(text)); err == nil {
			t.Errorf("%s: %+v", text, list)
		}
	}
}
