package query

import (
	"math"
	"net/url"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeweir/kubeweir/internal/api"
)

func parse(t testing.TB, query string) (*Query, error) {
	t.Helper()
	info := api.ParseRequestInfo("GET", "/api/v1/pods", query)
	if info.Query == nil {
		t.Fatalf("%s: no query", query)
	}
	return Parse(info.Query)
}

func TestPaths(t *testing.T) {
	for text, want := range map[string]string{
		".metadata.name":                                   ".metadata.name",
		"{.metadata.name}":                                 ".metadata.name",
		"{ $.metadata.name }":                              ".metadata.name",
		"['metadata'].name":                                ".metadata.name",
		`.metadata["name"]`:                                ".metadata.name",
		".spec.containers[0]":                              ".spec.containers[0]",
		".spec.containers[007]":                            ".spec.containers[7]",
		".metadata.labels['app.kubernetes.io/name']":       ".metadata.labels['app.kubernetes.io/name']",
		`.metadata.labels.app\.kubernetes\.io/name`:        ".metadata.labels['app.kubernetes.io/name']",
		`.metadata.annotations['it\'s \\']`:                `.metadata.annotations['it\'s \\']`,
		`.status.conditions[?(@.type=="Ready")].status`:    ".status.conditions[?(@.type=='Ready')].status",
		`.status.conditions[?(@.type == 'Ready')]['x y']`:  ".status.conditions[?(@.type=='Ready')]['x y']",
		".metadata.labels['']":                             ".metadata.labels['']",
		`.metadata.labels['a'].b['c[*]']`:                  ".metadata.labels.a.b['c[*]']",
		`.metadata.managedFields[0].fieldsV1['f:spec']._x`: ".metadata.managedFields[0].fieldsV1['f:spec']._x",
	} {
		q, err := parse(t, "sortBy="+url.QueryEscape(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := q.Sort[0].Path.String(); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// TestQueryErrorsNameTheParameter checks that errors name the parameter and say what to do.
func TestQueryErrorsNameTheParameter(t *testing.T) {
	long := strings.Repeat(".a,", 100)
	for query, want := range map[string]string{
		"sortBy=":                         "parameter sortBy: empty value: set a value or omit the parameter",
		"sortBy='name":                    "missing closing '",
		"sortBy=0":                        "parameter sortBy: at character 1: expected a path, such as .metadata.name, got \"0\"",
		"sortBy=a/b":                      "a comma or the end",
		"sortBy=.":                        "parameter sortBy: unexpected end: expected the name of a field",
		"sortBy=..name":                   "recursive descent (..) is not supported",
		"sortBy=.a.*":                     "wildcard members (.*) are not supported",
		"sortBy=.a[*].b":                  "[*] selects several values: select one",
		"sortBy={.a":                      "unexpected end: expected the } that ends the path",
		"sortBy=.a}":                      "at character 3: expected a comma or the end",
		"sortBy=.a,":                      "unexpected end: expected a path",
		"sortBy=.a[":                      "unexpected end: expected a name in quotes",
		"sortBy=.a['b":                    "missing closing '",
		"sortBy=.a['b'":                   "the ] that ends the step",
		"sortBy=.a[-1]":                   "a name in quotes, a number",
		"sortBy=.a[99999999]":             "invalid index 99999999",
		"sortBy=.a[?(@.b=='c']":           "the ) that ends the condition",
		"sortBy=.a[?(@.b>1)]":             "== and a text in quotes",
		"sortBy=.a[?(@.b==1)]":            "a text in quotes",
		"sortBy=.a:quantity:quantity":     "a comma or the end",
		"sortBy=.a:number":                "a comma or the end, got \":number\"",
		"sortBy=--.a":                     "a path",
		"sortBy=" + long:                  "value has more than 8 parts",
		"where=" + long:                   "value has more than 32 parts",
		"fields=" + long:                  "value has more than 64 parts",
		"countBy=" + long:                 "value has more than 8 parts",
		"where=.a.b.":                     "parameter where: unexpected end",
		"where=.a=1,":                     "a path",
		"where=.a$1":                      "one of = != ~ !~ < <= > >= in notin",
		"where=.a<abc":                    `"abc" cannot be ordered: use a number, a quantity, a time`,
		"where=.a<1h":                     `"1h" cannot be ordered: use a number, a quantity, a time`,
		"where=age<1w":                    `"1w" cannot be ordered: use a number, a quantity, a time`,
		"where=age<1h-":                   "cannot be ordered",
		"where=age<":                      "cannot be ordered",
		"where=.a<NaN":                    "cannot be ordered",
		"where=.a<=Inf":                   "cannot be ordered",
		"where=.a in (" + many(257) + ")": "more than 256 values: split the request",
		"where=" + many(4, ".a in ("+many(100)+")"): "more than 256 values: split the request",
		"where=.a>1Zi":                 `"1Zi" cannot be ordered: use a number, a quantity, a time`,
		"where=.a in 1":                "one of =",
		"where=.a in (1":               "a comma or the ) that ends the values",
		"where=.a[*]=1":                "[*] selects several values",
		"where=.a='1":                  "missing closing '",
		"where=!.a=1":                  "a comma or the end",
		"offset=-1":                    `parameter offset: "-1" is not a whole number from 0 to 2147483647`,
		"offset=1.5":                   "is not a whole number from 0 to 2147483647",
		"offset=99999999999":           "is not a whole number from 0 to 2147483647",
		"fields=.a[0]":                 "parameter fields: .a[0] selects one element of a list: use [*]",
		"fields=.a,b":                  "a path",
		"countBy=*":                    "parameter countBy: at character 1: expected a path",
		"sortBy=" + deep(40):           "path too long: the limits are 32 steps and 512 characters",
		"sortBy=." + manyLetters(600):  "path too long: the limits are 32 steps and 512 characters",
		"where=.a=" + manyLetters(9e3): "the limit is 8192",
	} {
		_, err := parse(t, strings.NewReplacer(" ", "%20", "#", "%23").Replace(query))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v", query, err)
		}
		if err != nil && !strings.HasPrefix(err.Error(), "parameter "+query[:strings.IndexByte(query, '=')]+": ") {
			t.Errorf("%.80s: %v names no parameter", query, err)
		}
	}
}

// many returns a value n times, separated by commas.
func many(n int, values ...string) string {
	value := "x"
	if len(values) > 0 {
		value = values[0]
	}
	return strings.TrimSuffix(strings.Repeat(value+",", n), ",")
}

func deep(n int) string        { return strings.Repeat(".a", n) }
func manyLetters(n int) string { return strings.Repeat("a", n) }

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

func TestConditions(t *testing.T) {
	none := Value{}
	old := func(d time.Duration) Value { return ValueOfCell(AgeToken(noon.Add(-d).Unix())) }
	number := func(text string) Value { return ValueOf([]byte(text)) }
	for condition, c := range map[string]struct{ yes, no []Value }{
		".a":                       {yes: []Value{stringOf(""), number("0"), number("false")}, no: []Value{none, number("null"), number("{}"), number("[1]")}},
		"!.a":                      {yes: []Value{none, number("[]")}, no: []Value{stringOf("")}},
		".a=Running":               {yes: []Value{stringOf("Running")}, no: []Value{none, stringOf("running"), number("1")}},
		".a == 'Running' ":         {yes: []Value{stringOf("Running")}, no: []Value{stringOf("'Running'")}},
		".a=":                      {yes: []Value{stringOf("")}, no: []Value{none, stringOf("x")}},
		".a!=Running":              {yes: []Value{none, stringOf("x"), number("1")}, no: []Value{stringOf("Running")}},
		".a=1":                     {yes: []Value{number("1"), number("1.0"), number("1e0"), stringOf("1")}, no: []Value{number("2"), stringOf("1.0"), number("true")}},
		".a=9007199254740993":      {yes: []Value{number("9007199254740993")}, no: []Value{number("9007199254740992")}},
		".a=true":                  {yes: []Value{number("true"), stringOf("true")}, no: []Value{number("false")}},
		".a~nn":                    {yes: []Value{stringOf("Running")}, no: []Value{none, stringOf("x")}},
		".a!~nn":                   {yes: []Value{none, stringOf("x")}, no: []Value{stringOf("Running")}},
		".a='x,y'":                 {yes: []Value{stringOf("x,y")}, no: []Value{stringOf("x")}},
		".a in (x, 'y z',3)":       {yes: []Value{stringOf("x"), stringOf("y z"), number("3")}, no: []Value{none, stringOf("y"), stringOf(" x")}},
		".a in(x)":                 {yes: []Value{stringOf("x")}, no: []Value{none}},
		".a notin (x,y)":           {yes: []Value{none, stringOf("z")}, no: []Value{stringOf("x")}},
		".a<500m":                  {yes: []Value{stringOf("100m"), number("0.4"), number("-1")}, no: []Value{none, stringOf("1"), stringOf("x"), stringOf("0.5"), number("true")}},
		".a<=500m":                 {yes: []Value{stringOf("0.5"), stringOf("500m")}, no: []Value{stringOf("501m")}},
		".a>1Gi":                   {yes: []Value{stringOf("2Gi"), stringOf("1100Mi"), stringOf("2G"), number("2e9")}, no: []Value{stringOf("1G"), stringOf("1024Mi")}},
		".a>=5":                    {yes: []Value{number("5"), number("7"), stringOf("5")}, no: []Value{number("4.9")}},
		".a<2026-01-31T12:00:00Z":  {yes: []Value{stringOf("2026-01-31T11:59:59Z"), stringOf("2026-01-31T12:30:00+01:00")}, no: []Value{none, number("5"), stringOf("5"), stringOf("2026-01-31T12:00:00Z")}},
		"age<3600":                 {yes: []Value{old(59 * time.Minute), old(-time.Hour)}, no: []Value{none, old(time.Hour), stringOf("x")}},
		"age<=1h":                  {yes: []Value{old(time.Hour)}, no: []Value{none, old(time.Hour + time.Second), number("5"), stringOf("5")}},
		"age>2d3h":                 {yes: []Value{old(52 * time.Hour)}, no: []Value{none, old(51 * time.Hour)}},
		"age>=1y":                  {yes: []Value{old(365 * 24 * time.Hour)}, no: []Value{old(364 * 24 * time.Hour)}},
		"age<2026-01-31T12:00:00Z": {yes: []Value{stringOf("2026-01-31T11:59:59Z")}, no: []Value{old(time.Hour), old(-time.Hour), none}},
		"age!=x":                   {yes: []Value{old(0), none}, no: []Value{stringOf("x")}},
		"restarts<5m":              {yes: []Value{old(4 * time.Minute), stringOf("4m"), number("0.004")}, no: []Value{old(5 * time.Minute), number("5"), none}},
		"age<500m":                 {yes: []Value{old(499 * time.Minute), number("0.4")}, no: []Value{old(500 * time.Minute), number("1")}},
		".a>=2026-01-31T12:00:00Z": {yes: []Value{stringOf("2026-01-31T12:00:00.000001Z"), stringOf("2026-01-31T12:00:00Z")}, no: []Value{stringOf("never")}},
	} {
		q, err := parse(t, "where="+url.QueryEscape(condition))
		if err != nil {
			t.Errorf("%s: %v", condition, err)
			continue
		}
		for _, v := range c.yes {
			if !q.Where[0].Matches(v, noon) {
				t.Errorf("%s does not match %+v", condition, v)
			}
		}
		for _, v := range c.no {
			if q.Where[0].Matches(v, noon) {
				t.Errorf("%s matches %+v", condition, v)
			}
		}
	}
}

// TestCompare checks that the order is total and begins with the kinds.
func TestCompare(t *testing.T) {
	rising := []string{"null", "false", "true", "-1e400", "-7", "0", "0.5", "9007199254740992", "9007199254740993", "1e300", `""`, `"10"`, `"9"`, `"A"`, `"a"`, `"é"`}
	for i, a := range rising {
		for k, b := range rising {
			got := Compare(ValueOf([]byte(a)), ValueOf([]byte(b)))
			if want := i - k; got < 0 != (want < 0) || got > 0 != (want > 0) {
				t.Errorf("%s and %s: %d", a, b, got)
			}
		}
	}
	if Compare(ValueOf([]byte("1")), ValueOf([]byte("1.0"))) != 0 {
		t.Error("1 is not 1.0")
	}
}

// TestQuantities compares quantities with apimachinery, except for those that would be expensive
// there.
func TestQuantities(t *testing.T) {
	suffixes := []string{"", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3", "E-2", "e", "K", "mi", "ki", "x", "Mi ", " m", "mm", "e1.5", "-"}
	numbers := []string{"0", "1", "7", "12", "1.5", ".5", "5.", "-3", "+4", "0.001", "100", "", "1.2.3", "--1", "1-", "0x1"}
	for _, number := range numbers {
		for _, suffix := range suffixes {
			text := number + suffix
			got, ok := parseQuantity(text)
			want, err := resource.ParseQuantity(text)
			if number == "" && ok {
				t.Errorf("%s: %v", text, got)
			}
			if number != "" && ok != (err == nil) {
				t.Errorf("%s: %v, %v", text, ok, err)
			}
			if f := want.AsApproximateFloat64(); ok && got < 9e18 && math.Abs(got-f) > 1e-9*max(1, math.Abs(f)) {
				t.Errorf("%s: %v, want %v", text, got, f)
			}
		}
	}
	for _, text := range []string{"1e1000000000", "1e-1000000000", strings.Repeat("9", 65)} {
		if n, ok := parseQuantity(text); ok && n != 0 {
			t.Errorf("%s: %v", text, n)
		}
	}
}

func TestTokens(t *testing.T) {
	q, _ := parse(t, "sortBy=.metadata.name&where=.a=1")
	other, _ := parse(t, "sortBy=.metadata.name&where=.a=2")
	same, _ := parse(t, "sortBy=.metadata.name&where=.a=1&fields=.a&countBy=.b")
	token := Token{ResourceVersion: 7, Offset: 50, At: 9}.Encode(q, "ns")
	for name, c := range map[string]struct {
		q        *Query
		token    string
		selected string
		message  string
	}{
		"same":             {q: same, token: token, selected: "ns"},
		"another query":    {q: other, token: token, selected: "ns", message: "another list"},
		"other objects":    {q: q, token: token, selected: "", message: "another list"},
		"kube-apiserver's": {q: q, token: api.ContinueToken{ResourceVersion: 7, Start: "a"}.Encode(), selected: "ns", message: "parameter continue: "},
		"none":             {q: q, token: "x", selected: "ns", message: "parameter continue: "},
	} {
		got, err := c.q.Decode(c.token, c.selected)
		switch {
		case c.message == "" && (err != nil || got != Token{ResourceVersion: 7, Offset: 50, At: 9}):
			t.Errorf("%s: %+v, %v", name, got, err)
		case c.message != "" && (err == nil || !strings.Contains(err.Error(), c.message)):
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := api.DecodeContinue(token); err == nil {
		t.Error("kube-apiserver would accept the token")
	}
}

// FuzzParse checks that every query is parsed or rejected, and that normalized paths parse to
// themselves.
func FuzzParse(f *testing.F) {
	for _, query := range []string{
		"sortBy=-.metadata.name:quantity,{.a['b']}", "where=.a in (1,'x'),!.b,.c~d,.e>=2Gi&offset=3", "fields=.a[*].b,.c&countBy=.a[?(@.b=='c')].d",
	} {
		f.Add(query)
	}
	f.Fuzz(func(t *testing.T, query string) {
		info := api.ParseRequestInfo("GET", "/api/v1/pods", query)
		if info.Query == nil {
			return
		}
		q, err := Parse(info.Query)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "parameter ") {
				t.Error(err)
			}
			return
		}
		for _, key := range q.Sort {
			if key.Path.isColumn {
				continue
			}
			s := &scanner{text: key.Path.String()}
			again, err := s.path()
			if err != nil || again.String() != key.Path.String() || s.rest() != "" {
				t.Errorf("%q is read as %q: %v", key.Path, again, err)
			}
		}
		for i := range q.Where {
			for _, v := range []Value{{}, stringOf("x"), stringOf("1"), ValueOf([]byte("1"))} {
				q.Where[i].Matches(v, noon)
			}
		}
	})
}

// TestLongValues checks that long strings are cut between characters.
func TestLongValues(t *testing.T) {
	for _, c := range []struct{ token, want string }{
		{strings.Repeat("a", maxString), strings.Repeat("a", maxString)},
		{strings.Repeat("a", maxString+1), strings.Repeat("a", maxString)},
		{strings.Repeat("a", maxString-1) + "éb", strings.Repeat("a", maxString-1)},
		{strings.Repeat("a", maxString-1) + `\n`, strings.Repeat("a", maxString-1)},
		{strings.Repeat("a", maxString-2) + `\nb`, strings.Repeat("a", maxString-2) + "\n"},
		{strings.Repeat("a", maxString-5) + `\u0041b`, strings.Repeat("a", maxString-5)},
		{strings.Repeat("a", maxString-6) + `\u0041b`, strings.Repeat("a", maxString-6) + "A"},
		{strings.Repeat("a", maxString) + `\"`, strings.Repeat("a", maxString)},
		{strings.Repeat("é", maxString), strings.Repeat("é", maxString/2)},
		{strings.Repeat(`\u00e9`, maxString), strings.Repeat("é", maxString/6)},
	} {
		if v := ValueOf([]byte(`"` + c.token + `"`)); v != stringOf(c.want) {
			t.Errorf("%.20s..%s: %d bytes, ..%s", c.token, c.token[len(c.token)-8:], len(v.Text), v.Text[len(v.Text)-8:])
		}
	}
	long, short := ValueOf([]byte("1."+strings.Repeat("0", 1000)+"1e3")), ValueOf([]byte("1000"))
	if len(long.Text) > maxNumber || Compare(long, short) != 0 {
		t.Errorf("%+v", long)
	}
}

func stringOf(text string) Value { return Value{Kind: String, Text: text} }
