package json

import (
	stdjson "encoding/json"
	"testing"
)

const nested = ` {"a":{"b\"":"x","c":[{"t":"one","v":1},7,{"v":2.50,"t":"two"}, "s"],"d":null,"e":{},"f":[]} , "g":"\u00e9\n","h":true}`

func names(all ...string) (path []Step) {
	for _, name := range all {
		path = append(path, Step{Name: name})
	}
	return path
}

func TestLookup(t *testing.T) {
	element := func(i int) Step { return Step{Kind: Element, Index: i} }
	matching := func(name, value string) Step { return Step{Kind: Matching, Name: name, Value: value} }
	for _, c := range []struct {
		path []Step
		want string
	}{
		{names("a", `b"`), `"x"`},
		{names("g"), `"\u00e9\n"`},
		{names("h"), `true`},
		{names("h", "i"), ""},
		{names("a", "d"), "null"},
		{names("a", "d", "x"), ""},
		{names("a", "e"), "{}"},
		{names("a", "e", "x"), ""},
		{names("a", "c", "t"), ""},
		{append(names("a", "c"), element(1)), "7"},
		{append(names("a", "c"), element(3)), `"s"`},
		{append(names("a", "c"), element(4)), ""},
		{append(names("a", "f"), element(0)), ""},
		{append(names("a"), element(0)), ""},
		{append(append(names("a", "c"), matching("t", "two")), names("v")...), "2.50"},
		{append(names("a", "c"), matching("t", "three")), ""},
		{append(names("a", "c"), matching("v", "1")), ""},
		{names("x"), ""},
	} {
		if got := string(Lookup([]byte(nested), c.path)); got != c.want {
			t.Errorf("%+v: %s, want %s", c.path, got, c.want)
		}
	}
	if text, ok := Text([]byte(`"\u00e9\n"`)); text != "é\n" || !ok {
		t.Errorf("%q", text)
	}
	for n := range len(nested) {
		Lookup([]byte(nested[:n]), names("a", "z")) // does not panic
	}
}

func TestProjection(t *testing.T) {
	every := Step{Kind: Every}
	for _, c := range []struct {
		paths [][]Step
		want  string
	}{
		{[][]Step{names("g")}, `{"g":"\u00e9\n"}`},
		{[][]Step{names("h"), names("g")}, `{"g":"\u00e9\n","h":true}`},
		{[][]Step{names("a", `b"`)}, `{"a":{"b\"":"x"}}`},
		{[][]Step{names("a", "x")}, `{"a":{}}`},
		{[][]Step{names("h", "x")}, `{}`},
		{[][]Step{names("x")}, `{}`},
		{[][]Step{append(append(names("a", "c"), every), names("v")...)}, `{"a":{"c":[{"v":1},{"v":2.50}]}}`},
		{[][]Step{append(names("a", "c"), every)}, `{"a":{"c":[{"t":"one","v":1},7,{"v":2.50,"t":"two"},"s"]}}`},
		{[][]Step{names("a", "f"), names("a", "e")}, `{"a":{"e":{},"f":[]}}`},
		{[][]Step{append(names("a", "f"), every)}, `{"a":{"f":[]}}`},
		{[][]Step{names("a", "e", "x"), append(names("a", "e"), every)}, `{"a":{"e":{}}}`},
	} {
		var p Projection
		for _, path := range c.paths {
			p.Add(path)
		}
		got := string(p.Append(nil, []byte(nested)))
		if got != c.want || !stdjson.Valid([]byte(got)) {
			t.Errorf("%+v: %s, want %s", c.paths, got, c.want)
		}
		for n := range len(nested) {
			p.Append(nil, []byte(nested[:n])) // does not panic
		}
	}
	var whole Projection
	whole.Add(names("a", "e"))
	whole.Add(names("a"))
	whole.Add(names("a", "d"))
	if got := string(whole.Append(nil, []byte(`{"a":{"e":1,"z":2}}`))); got != `{"a":{"e":1,"z":2}}` {
		t.Error(got)
	}
}
