package conformance

import (
	"bufio"
	"bytes"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// dedicated are the cases with a test function of their own.
var dedicated = []string{"idle/5 bookmarks", "old/15 without WatchList", "fault/74 the upstream is lost", "socket/body of the handshake", "shard/before a server that does not know them"}

// TestCaseNames checks that names are unique. TestSemantics checks which assertions the cases cite.
func TestCaseNames(t *testing.T) {
	env := &Env{Users: map[string]Credentials{}, Versions: Versions{Expired: 100, Start: 200, Middle: 300, Seeded: 400}}
	names := slices.Clone(dedicated)
	for _, c := range slices.Concat(getCases(env), listCases(env), chunkCases(env), selectorCases(env), negotiationCases(env),
		errorCases(env), discoveryCases(env), watchCases(env), authCases(env)) {
		names = append(names, c.Name)
	}
	for _, c := range LiveCases() {
		names = append(names, c.Name)
	}
	for _, c := range Scenarios() {
		names = append(names, c.Name)
	}
	seen := make(map[string]bool)
	for _, name := range names {
		if seen[name] {
			t.Errorf("two cases are named %q", name)
		}
		seen[name] = true
	}
}

func json200(body string) Response {
	return Response{Status: 200, Header: http.Header{"Content-Type": {typeJSON}, "Audit-Id": {"x"}}, Body: []byte(body)}
}

// TestDifferences checks that differences reports wrong responses and ignores only allowed
// differences.
func TestDifferences(t *testing.T) {
	list := func(rv, token, item string) Response {
		return json200(`{"kind":"L","metadata":{"resourceVersion":"` + rv + `","continue":"` + token + `"},"items":[{"metadata":{"resourceVersion":"` + item + `"}}]}`)
	}
	withHeader := func(key, value string) Response {
		r := json200(`{}`)
		r.Header.Set(key, value)
		return r
	}
	for _, tc := range []struct {
		name      string
		c         Case
		want, got Response
		differ    string // part of the reported difference; "" if none
	}{
		{"same", Case{}, json200(`{"a":1}`), json200(`{"a":1}`), ""},
		{"body", Case{}, json200(`{"a":1}`), json200(`{"a":2}`), "body: "},
		{"white space", Case{}, json200(`{"a":1}`), json200(`{"a": 1}`), "body: "},
		{"status", Case{}, json200(`{}`), Response{Status: 500, Header: json200("").Header, Body: []byte(`{}`)}, "status: 500, want 200"},
		{"content type", Case{}, json200(`{}`), withHeader("Content-Type", "text/plain"), "header Content-Type"},
		{"warning lost", Case{}, withHeader("Warning", "299 x"), json200(`{}`), "header Warning"},
		{"warning made up", Case{}, json200(`{}`), withHeader("Warning", "299 x"), "header Warning"},
		{"audit id is each server's own", Case{}, json200(`{}`), withHeader("Audit-Id", "y"), ""},
		{"audit id is missing", Case{}, json200(`{}`), withHeader("Audit-Id", ""), "header Audit-Id"},
		{"an ETag may be added", Case{}, json200(`{}`), withHeader("ETag", "x"), ""},
		{"an ETag may not change", Case{}, withHeader("ETag", "y"), withHeader("ETag", "x"), "header Etag"},
		{"list version", Case{}, list("5", "", "4"), list("6", "", "4"), "body: "},
		{"list version, any", Case{Version: AnyVersion}, list("5", "", "4"), list("6", "", "4"), ""},
		{"item version, any", Case{Version: AnyVersion}, list("5", "", "4"), list("5", "", "3"), "body: "},
		{"list version missing", Case{Version: AnyVersion}, list("5", "", "4"), json200(`{"kind":"L","metadata":{},"items":[]}`), "list version"},
		{"list older than an item", Case{Version: AnyVersion}, list("5", "", "4"), list("3", "", "4"), "older than an item"},
		{"tokens that mean the same", Case{}, list("5", makeToken(5, "/a"), "4"), list("5", makeToken(5, "a"), "4"), ""},
		{"tokens that start elsewhere", Case{}, list("5", makeToken(5, "a"), "4"), list("5", makeToken(5, "b"), "4"), "body: "},
		{"tokens of other versions", Case{}, list("5", makeToken(5, "a"), "4"), list("5", makeToken(4, "a"), "4"), "body: "},
		{"masked text", Case{}.mask(`current: \d+`), json200(`"current: 5"`), json200(`"current: 6"`), ""},
		{"unmasked text", Case{}.mask(`current: \d+`), json200(`"current: 5"`), json200(`"Current: 5"`), "body: "},
		{"protobuf list, any", Case{Version: AnyVersion}, protoList("5"), protoList("17"), ""},
		{"protobuf list", Case{}, protoList("5"), protoList("17"), "body: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := lines(differences(tc.c, response{pages: []Response{tc.want}}, response{pages: []Response{tc.got}}))
			if (got == "") != (tc.differ == "") || !strings.Contains(got, tc.differ) {
				t.Errorf("differences %q, want %q", got, tc.differ)
			}
		})
	}
}

func protoList(version string) Response {
	meta := protowire.AppendString(protowire.AppendTag(nil, listMetaVersion, protowire.BytesType), version)
	list := protowire.AppendBytes(protowire.AppendTag(nil, listMeta, protowire.BytesType), meta)
	unknown := protowire.AppendBytes(protowire.AppendTag(nil, unknownRaw, protowire.BytesType), list)
	r := json200("")
	r.Body = append(bytes.Clone(protoMagic), unknown...)
	return r
}

// TestFrameDifferences compares watches with each kind of error.
func TestFrameDifferences(t *testing.T) {
	event := func(kind, rv string) Frame {
		f, err := jsonFrame([]byte(`{"type":"` + kind + `","object":{"metadata":{"resourceVersion":"` + rv + `"}}}` + "\n"))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	base := []Frame{event(added, "1"), event(bookmark, "2")}
	for _, tc := range []struct {
		name   string
		frames []Frame
		end    string
		differ string
	}{
		{"same", base, "EOF", ""},
		{"a bookmark's version is each server's own", []Frame{event(added, "1"), event(bookmark, "77")}, "EOF", ""},
		{"an event's is not", []Frame{event(added, "2"), event(bookmark, "2")}, "EOF", "event 0"},
		{"another type", []Frame{event(modified, "1"), event(bookmark, "2")}, "EOF", "event 0"},
		{"one lost", base[:1], "EOF", "event 1 is missing"},
		{"one repeated", append(slices.Clone(base), base[1]), "EOF", "event 2 is too many"},
		{"another order", []Frame{base[1], base[0]}, "EOF", "event 0"},
		{"another end", base, "", "end of the watch"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := lines(frameDifferences(Case{}, response{frames: base, end: "EOF"}, response{frames: tc.frames, end: tc.end}))
			if (got == "") != (tc.differ == "") || !strings.Contains(got, tc.differ) {
				t.Errorf("differences %q, want %q", got, tc.differ)
			}
		})
	}
}

func TestFramesCutOff(t *testing.T) {
	for _, tc := range []struct{ name, contentType, stream string }{
		{"JSON", typeJSON, `{"type":"ADDED","object":{`},
		{"no event", typeJSON, "{}\n"},
		{"protobuf", typeProtoWatch, "\x00\x00\x00\x05ab"},
		{"protobuf length", typeProtoWatch, "\xff\xff\xff\xffab"},
		{"no protobuf event", typeProtoWatch, "\x00\x00\x00\x02ab"},
	} {
		if f, err := nextFrame(bufio.NewReader(strings.NewReader(tc.stream)), tc.contentType); err == nil {
			t.Errorf("%s: read %+v", tc.name, f)
		}
	}
}

// TestInvented checks that masking preserves identity: equal values stay equal, different ones
// different.
func TestInvented(t *testing.T) {
	m := newInvented("ns-a")
	got := string(m.mask([]byte(`{"namespace":"ns-a","resourceVersion":"5","uid":"11111111-2222-3333-4444-555555555555","t":"2024-01-01T00:00:00Z"}`))) +
		string(m.mask([]byte(`{"resourceVersion":"5"}{"resourceVersion":"6"} generated-abcde`)))
	want := `{"namespace":"NS",VERSION1,"uid":"UID1","t":"TIME"}{VERSION1}{VERSION2} SUFFIX1`
	if got != want {
		t.Errorf("masked %s\n want %s", got, want)
	}
}

// TestMaskBookmarks checks that the version of a bookmark is masked unless it is lower than that of
// the previous event.
func TestMaskBookmarks(t *testing.T) {
	line := func(kind, version string) string {
		return `{"type":"` + kind + `","object":{"metadata":{"resourceVersion":"` + version + `"}}}` + "\n"
	}
	for _, tc := range []struct{ body, want string }{
		{line("ADDED", "9") + line("BOOKMARK", "10"), line("ADDED", "9") + line("BOOKMARK", "MASKED")},
		{line("ADDED", "9") + line("BOOKMARK", "9"), line("ADDED", "9") + line("BOOKMARK", "MASKED")},
		{line("ADDED", "9") + line("BOOKMARK", "8"), line("ADDED", "9") + line("BOOKMARK", "8")},
		{`{"type":"BOOKMARK"} is no event`, `{"type":"BOOKMARK"} is no event`},
	} {
		if got := string(maskBookmarks([]byte(tc.body))); got != tc.want {
			t.Errorf("masked %s want %s", got, tc.want)
		}
	}
}

// TestSortManagers checks that the times of managers do not affect their order after sorting, but
// that a wrong order is preserved.
func TestSortManagers(t *testing.T) {
	entry := func(manager, second string) string {
		return `{"manager":"` + manager + `","operation":"Update","time":"2024-01-01T00:00:0` + second + `Z"}`
	}
	object := func(entries ...string) string {
		return `{"metadata":{"managedFields":[` + strings.Join(entries, ",") + `]}} `
	}
	a1, a2, b1, b2 := entry("a", "1"), entry("a", "2"), entry("b", "1"), entry("b", "2")
	for _, tc := range [][2]string{
		{object(a1, b1), object(a1, b1)},
		{object(b1, a2), object(a2, b1)},
		{object(a1, b2) + object(b1, a2), object(a1, b2) + object(a2, b1)},
		{object(b1, a1), object(b1, a1)}, // not the order of a server
		{object(b2, a1), object(b2, a1)},
		{`"managedFields":[x`, `"managedFields":[x`},
		{`"managedFields":[1,2]`, `"managedFields":[1,2]`},
	} {
		if got := string(sortManagers([]byte(tc[0]))); got != tc[1] {
			t.Errorf("sorted %s\n  got %s\n want %s", tc[0], got, tc[1])
		}
	}
}

func TestTopLevel(t *testing.T) {
	body := []byte(`{"items":[{"metadata":{"no":1}}], "metadata": {"yes": 1}}`)
	from, to, ok := topLevel(body, "metadata")
	if !ok || string(body[from:to]) != `{"yes": 1}` {
		t.Errorf("found %v %q", ok, body[from:to])
	}
	for _, bad := range []string{"", "[]", "k8s", `{"metadata":`, `{"a":1}`} {
		if _, _, ok := topLevel([]byte(bad), "metadata"); ok {
			t.Errorf("found metadata in %q", bad)
		}
	}
}

func TestColumnsMask(t *testing.T) {
	re := regexp.MustCompile(columns)
	for _, s := range []string{`{"columnDefinitions":null,"rows":[]}`, `{"columnDefinitions":[{"description":"[a] b"}],"rows":[]}`} {
		if got := re.ReplaceAllString(s, "M"); got != `{M:[]}` {
			t.Errorf("%s became %s", s, got)
		}
	}
}
