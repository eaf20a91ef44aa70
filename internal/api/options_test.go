package api

import (
	"math/bits"
	"net/url"
	"reflect"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metainternalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metainternalversionvalidation "k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// libraryListOptions is listOpts of k8s.io/apiserver/pkg/endpoints/handlers.
func libraryListOptions(rawQuery string) (metainternalversion.ListOptions, error) {
	opts := metainternalversion.ListOptions{}
	target := url.URL{RawQuery: rawQuery}
	if err := metainternalversionscheme.ParameterCodec.DecodeParameters(target.Query(), metav1.SchemeGroupVersion, &opts); err != nil {
		return opts, apierrors.NewBadRequest(err.Error())
	}
	metainternalversion.SetListOptionsDefaults(&opts, true)
	if errs := metainternalversionvalidation.ValidateListOptions(&opts, true); len(errs) > 0 {
		return opts, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	return opts, nil
}

// listQueries combines the parameters that interact.
func listQueries() []string {
	queries := append([]string{
		"limit=", "limit=-1", "limit=abc", "limit=99999999999999999999", "limit=5&limit=x", "timeoutSeconds=", "timeoutSeconds=-3", "timeoutSeconds=0", "timeoutSeconds=1.5",
		"labelSelector=a%3Db,c+in+(d,e),!f&fieldSelector=spec.nodeName%3Dn", "labelSelector=a%3D%3D%3Db", "labelSelector=a>b", "fieldSelector=a", "fieldSelector=a%3Db%5C%2Cc",
		"shardSelector=x", "allowWatchBookmarks", "allowWatchBookmarks=false", "unknown=1&resourceVersion=00", "a;b=c&limit=3", "limit=%zz", "limit=1%",
		"sendInitialEvents=false&watch=1&resourceVersion=5", "sendInitialEvents=0&resourceVersionMatch=NotOlderThan&watch=1", "a=b",
		strings.Repeat("a=b&", 100) + "limit=7", strings.Repeat("limit=3&", 70),
	}, requestQueries...)
	for _, watch := range []string{"", "&watch=1"} {
		for _, version := range []string{"", "&resourceVersion=", "&resourceVersion=0", "&resourceVersion=00", "&resourceVersion=42", "&resourceVersion=abc"} {
			for _, match := range []string{"", "&resourceVersionMatch=Exact", "&resourceVersionMatch=NotOlderThan", "&resourceVersionMatch=Foo", "&resourceVersionMatch="} {
				for _, events := range []string{"", "&sendInitialEvents=true", "&sendInitialEvents=false"} {
					for _, token := range []string{"", "&continue=abc"} {
						queries = append(queries, strings.TrimPrefix(watch+version+match+events+token+"&limit=10", "&"))
					}
				}
			}
		}
	}
	return queries
}

func TestParseListOptionsMatchesLibrary(t *testing.T) {
	for _, query := range listQueries() {
		checkListOptions(t, query)
	}
}

func FuzzParseListOptions(f *testing.F) {
	for _, query := range listQueries() {
		f.Add(query)
	}
	f.Fuzz(checkListOptions)
}

func checkListOptions(t *testing.T, query string) {
	t.Helper()
	want, wantErr := libraryListOptions(query)
	got, err := ParseListOptions(query)
	if wantErr != nil || err != nil {
		if !reflect.DeepEqual(err, wantErr) {
			t.Fatalf("%q: error %v, want %v", query, err, wantErr)
		}
		return
	}
	if got.SendInitialEvents != (want.SendInitialEvents != nil && *want.SendInitialEvents) {
		t.Errorf("%q: SendInitialEvents %v", query, got.SendInitialEvents)
	}
	if want.SendInitialEvents == nil && want.Watch && (want.ResourceVersion == "" || want.ResourceVersion == "0") {
		t.Errorf("%q: the library left SendInitialEvents open; a bool cannot say so", query)
	}
	if unmarked := want.Watch && want.SendInitialEvents == nil && got.isAnyVersion(); got.UnmarkedStart != unmarked {
		t.Errorf("%q: UnmarkedStart %v", query, got.UnmarkedStart)
	}
	if got.TimeoutSeconds != 0 && (want.TimeoutSeconds == nil || *want.TimeoutSeconds != got.TimeoutSeconds) ||
		got.TimeoutSeconds == 0 && want.TimeoutSeconds != nil && *want.TimeoutSeconds != 0 {
		t.Errorf("%q: TimeoutSeconds %d", query, got.TimeoutSeconds)
	}
	text := func(s interface{ String() string }) string {
		if s == nil || reflect.ValueOf(s).Kind() == reflect.Ptr && reflect.ValueOf(s).IsNil() {
			return ""
		}
		return s.String()
	}
	if got.LabelSelector == nil || got.FieldSelector == nil {
		t.Fatalf("%q: nil selector", query)
	}
	if want.LabelSelector != nil && got.LabelSelector.String() != text(want.LabelSelector) || want.LabelSelector == nil && !got.LabelSelector.Empty() {
		t.Errorf("%q: LabelSelector %v", query, got.LabelSelector)
	}
	if want.FieldSelector != nil && got.FieldSelector.String() != text(want.FieldSelector) || want.FieldSelector == nil && !got.FieldSelector.Empty() {
		t.Errorf("%q: FieldSelector %v", query, got.FieldSelector)
	}
	if got.Watch != want.Watch || got.AllowWatchBookmarks != want.AllowWatchBookmarks || got.ResourceVersion != want.ResourceVersion ||
		got.ResourceVersionMatch != want.ResourceVersionMatch || got.Limit != want.Limit || got.Continue != want.Continue || got.ShardSelector != want.ShardSelector {
		t.Errorf("%q:\n got %+v\nwant %+v", query, got, want)
	}
}

// TestListOptionsFastPath makes sure that usual requests avoid the library.
func TestListOptionsFastPath(t *testing.T) {
	for _, query := range []string{
		"", "limit=500", "limit=500&resourceVersion=0", "resourceVersion=7&resourceVersionMatch=Exact", "labelSelector=app%3Dweb&limit=500",
		"allowWatchBookmarks=true&resourceVersion=5&timeoutSeconds=400&watch=true", "fieldSelector=metadata.name%3Dx&watch=true",
		"allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&watch=true", "limit=500&continue=abc",
	} {
		q := parseQuery(query)
		if opts, ok := q.fastListOptions(); !ok || !opts.setDefaults() {
			t.Errorf("%q takes the slow path", query)
		}
	}
}

func TestMostRecent(t *testing.T) {
	for query, want := range map[string]bool{
		"": true, "resourceVersion=": true, "resourceVersion=0": false, "resourceVersion=5": false, "limit=5": true, "continue=x": false,
		"continue=" + ContinueToken{ResourceVersion: -1, Start: "a"}.Encode():                   true,
		"continue=" + ContinueToken{ResourceVersion: 7, Start: "a"}.Encode():                    false,
		"resourceVersion=0&continue=" + ContinueToken{ResourceVersion: -1, Start: "a"}.Encode(): true,
	} {
		opts, err := ParseListOptions(query)
		if err != nil || opts.MostRecent() != want {
			t.Errorf("%q: %v, %v", query, opts.MostRecent(), err)
		}
	}
}

func TestParseIncludeObject(t *testing.T) {
	for value, want := range map[string]IncludeObject{"": IncludeMetadata, "Metadata": IncludeMetadata, "Object": IncludeObjectFull, "None": IncludeNone} {
		if got, ok := ParseIncludeObject(value); !ok || got != want {
			t.Errorf("%q: %v, %v", value, got, ok)
		}
	}
	if _, ok := ParseIncludeObject("Foo"); ok {
		t.Error("Foo is accepted")
	}
}

func TestPretty(t *testing.T) {
	for _, test := range []struct {
		query, agent string
		want         bool
	}{
		{"", "", false}, {"", "curl/8", true}, {"", "Wget/1", true}, {"", "Mozilla/5.0 (X11)", true}, {"", "Mozilla/4.0", false}, {"", "kubectl/v1.36", false},
		{"pretty=true", "", true}, {"pretty=1", "", true}, {"pretty=yes", "curl", false}, {"pretty=false", "curl", false}, {"pretty=", "curl", true}, {"prett%79=t", "", true},
	} {
		info := ParseRequestInfo("GET", "/", test.query)
		if got := info.Pretty(test.agent); got != test.want {
			t.Errorf("%q %q: %v", test.query, test.agent, got)
		}
	}
}

// FuzzQuery compares query with net/url.
func FuzzQuery(f *testing.F) {
	for _, query := range listQueries() {
		f.Add(query)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		values, err := url.ParseQuery(raw)
		q := parseQuery(raw)
		if q.exact && err != nil {
			t.Errorf("%q is exact, and net/url says %v", raw, err)
		}
		if err != nil && len(values) == 0 {
			return // also if there are too many parameters
		}
		known := 0
		for name, v := range values {
			p := parameterNamed(name)
			if p == noParameter {
				continue
			}
			known++
			if !q.has(p) || q.values[p] != v[0] || q.exact && len(v) > 1 {
				t.Errorf("%q of %q: %q, want %q", name, raw, q.values[p], v)
			}
		}
		if n := bits.OnesCount(q.seen); n != known || q.exact && known != len(values) {
			t.Errorf("%q: %d parameters, %d known of %d", raw, n, known, len(values))
		}
	})
}

func BenchmarkParseListOptions(b *testing.B) {
	for name, query := range map[string]string{
		"plain":    "limit=500&resourceVersion=0",
		"selector": "labelSelector=app%3Dweb&limit=500",
		"watch":    "allowWatchBookmarks=true&resourceVersion=12345&timeoutSeconds=400&watch=true",
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := ParseListOptions(query); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/library", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				q := parseQuery(query)
				if _, err := q.slowListOptions(query); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
