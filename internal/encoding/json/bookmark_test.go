package json

import (
	"testing"

	"github.com/kubeweir/kubeweir/internal/encoding"
	"github.com/kubeweir/kubeweir/internal/encoding/encodingtest"
)

// Bookmarks of kube-apiserver v1.36.3.
const (
	podBookmark = `{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"215","annotations":{"k8s.io/initial-events-end":"true"}},"spec":{"containers":null},"status":{}}`
	// Older releases write the empty creationTimestamp.
	oldBookmark    = `{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"12746","creationTimestamp":null},"spec":{"containers":null},"status":{}}`
	customBookmark = `{"apiVersion":"ex.com/v1","kind":"Widget","metadata":{"annotations":{"k8s.io/initial-events-end":"true"},"resourceVersion":"219"}}`
)

func TestBookmarks(t *testing.T) {
	for _, c := range []struct {
		name, learned string
		rv            uint64
		end           bool
		plain, marked string // at version 7
	}{
		{"typed, marked", podBookmark, 215, true,
			`{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"7"},"spec":{"containers":null},"status":{}}`,
			`{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"true"}},"spec":{"containers":null},"status":{}}`},
		{"typed, plain", oldBookmark, 12746, false,
			`{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"7","creationTimestamp":null},"spec":{"containers":null},"status":{}}`,
			`{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"7","creationTimestamp":null,"annotations":{"k8s.io/initial-events-end":"true"}},"spec":{"containers":null},"status":{}}`},
		{"custom, marked", customBookmark, 219, true,
			`{"apiVersion":"ex.com/v1","kind":"Widget","metadata":{"resourceVersion":"7"}}`,
			`{"apiVersion":"ex.com/v1","kind":"Widget","metadata":{"annotations":{"k8s.io/initial-events-end":"true"},"resourceVersion":"7"}}`},
		{"custom, plain", `{"apiVersion":"ex.com/v1","kind":"Widget","metadata":{"resourceVersion":"3"}}`, 3, false,
			`{"apiVersion":"ex.com/v1","kind":"Widget","metadata":{"resourceVersion":"7"}}`,
			`{"apiVersion":"ex.com/v1","kind":"Widget","metadata":{"annotations":{"k8s.io/initial-events-end":"true"},"resourceVersion":"7"}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Codec{}.ParseBookmark([]byte(c.learned))
			if want := (encoding.Bookmark{ResourceVersion: c.rv, InitialEventsEnd: c.end}); err != nil || got != want {
				t.Fatalf("parsed %+v, %v", got, err)
			}
			tmpl, err := Codec{}.LearnBookmark([]byte(c.learned))
			if err != nil {
				t.Fatal(err)
			}
			encodingtest.Same(t, "same again", tmpl.AppendObject(nil, c.rv, c.end), []byte(c.learned))
			encodingtest.Same(t, "plain", tmpl.AppendObject(nil, 7, false), []byte(c.plain))
			encodingtest.Same(t, "marked", tmpl.AppendObject([]byte("x"), 7, true), []byte("x"+c.marked))
		})
	}
	plain := Codec{}.NewBookmark("v1", "Pod", false)
	encodingtest.Same(t, "fallback", plain.AppendObject(nil, 9, false), []byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"9"}}`))
	custom := Codec{}.NewBookmark("ex.com/v1", "Widget", true)
	encodingtest.Same(t, "custom fallback", custom.AppendObject(nil, 219, true), []byte(customBookmark))
	encodingtest.Same(t, "metadata", custom.AppendMetadata(nil, 1, false), []byte(`{"resourceVersion":"1"}`))
}

func TestBookmarkErrors(t *testing.T) {
	for _, raw := range []string{
		``, `[]`, `{}`, `{"metadata":[]}`, `{"metadata":{}}`, `{"metadata":{"resourceVersion":5}}`, `{"metadata":{"resourceVersion":"x"}}`,
		`{"metadata":{"resourceVersion":"5","name":"n"}}`, `{"metadata":{"resourceVersion":"5"}`, `{"metadata":{"resourceVersion":"5"}}x`,
	} {
		if _, err := (Codec{}).LearnBookmark([]byte(raw)); err == nil {
			t.Errorf("%s accepted", raw)
		}
	}
}

// FuzzBookmark: parsing does not panic, and templates render the bookmark that they were learned
// from.
func FuzzBookmark(f *testing.F) {
	f.Add([]byte(podBookmark))
	f.Add([]byte(customBookmark))
	f.Add([]byte(oldBookmark))
	f.Fuzz(func(t *testing.T, raw []byte) {
		tmpl, err := Codec{}.LearnBookmark(raw)
		if err != nil {
			return
		}
		bookmark, err := Codec{}.ParseBookmark(raw)
		if err != nil {
			t.Fatalf("learned from a non-bookmark: %q", raw)
		}
		for _, mark := range []bool{true, false} {
			out := tmpl.AppendObject(nil, bookmark.ResourceVersion, mark)
			got, err := Codec{}.ParseBookmark(out)
			if err != nil || got.ResourceVersion != bookmark.ResourceVersion || got.InitialEventsEnd != mark {
				t.Fatalf("%q rendered %q: %+v, %v", raw, out, got, err)
			}
		}
	})
}
