package embedded

import (
	"slices"
	"testing"
)

func TestFolders(t *testing.T) {
	x := newIndex()
	for i, key := range []string{
		"/registry/a", "/registry/pods/default/a", "/registry/pods/default/b", "/registry/pods/kube-system/a", "/registry/podtemplates/default/a",
		"/registry/example.com/widgets/a", "/registry/example.com/widgets/b", "/registry/example.com/gadgets/a", "/registry2/pods/a", "/registry/\xff/a",
	} {
		x.set(key, uint64(i+1))
	}
	got := x.folders("/registry/", func(name string) bool { return name == "example.com" })
	want := []Folder{{"example.com/gadgets", 1}, {"example.com/widgets", 2}, {"pods", 3}, {"podtemplates", 1}, {"\xff", 1}}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
