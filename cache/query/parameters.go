package query

import (
	"encoding/base64"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/encoding/json"
)

// Limits of a query. They bound its cost per object.
const (
	maxSort       = 8
	maxConditions = 32
	maxOperands   = 256 // of all conditions
	maxFields     = 64
	maxCounts     = 8
	maxText       = 8 << 10 // of a parameter
)

// Query is the parsed parameters of a list. It is immutable and safe for concurrent use.
type Query struct {
	// Sort is the order of the list, most significant key first. Without keys, objects are in the
	// order of their names.
	Sort []Key
	// Where are conditions that all objects of the list fulfill.
	Where []Condition
	// Offset is how many objects of the list precede its first page.
	Offset int
	// Fields is the part of the objects to return, nil for all of it.
	Fields *json.Projection
	// CountBy are the paths or columns by whose values objects are counted.
	CountBy []Path
	// CountsAlone is set if only the counts are requested, and no objects.
	CountsAlone bool
	// text spells the query, order that part of it that determines the objects and their order.
	text, order string
}

// Key is one key of an order.
type Key struct {
	Path Path
	// Quantity is true if values are compared as quantities.
	Quantity   bool
	Descending bool
}

// String returns the normalized query: queries with equal strings have equal results.
func (q *Query) String() string { return q.text }

// Parse parses the parameters of a list. The error is a 400 that names the parameter.
func Parse(p *api.Query) (*Query, error) {
	q := &Query{CountsAlone: p.LimitZero}
	for i := range parameters {
		parameter := api.QueryParameter(i)
		text, given := p.Get(parameter)
		if !given {
			continue
		}
		var err error
		switch {
		case text == "":
			err = errors.New("empty value: set a value or omit the parameter")
		case len(text) > maxText:
			err = fmt.Errorf("value has %d characters, the limit is %d", len(text), maxText)
		default:
			err = parameters[i](q, text)
		}
		if err != nil {
			return nil, BadRequest(parameter, err)
		}
		q.text += "&" + parameter.String() + "=" + strconv.Quote(text)
		if parameter == api.QuerySortBy || parameter == api.QueryWhere {
			q.order += "&" + parameter.String() + "=" + strconv.Quote(text)
		}
	}
	q.CountsAlone = q.CountsAlone && len(q.CountBy) > 0
	return q, nil
}

// BadRequest returns the 400 for a parameter.
func BadRequest(p api.QueryParameter, err error) error {
	return apierrors.NewBadRequest(fmt.Sprintf("parameter %s: %v", p, err))
}

// eachPart calls read for each comma-separated part of text. There may be at most most parts.
func eachPart(text string, most int, read func(s *scanner) error) error {
	s := &scanner{text: text}
	for n := 1; ; n++ {
		if n > most {
			return fmt.Errorf("value has more than %d parts", most)
		}
		s.spaces()
		if err := read(s); err != nil {
			return err
		}
		if s.spaces(); s.peek() == 0 {
			return nil
		}
		if !s.take(",") {
			return s.unexpected("a comma or the end")
		}
	}
}

func (q *Query) parseSort(text string) error {
	return eachPart(text, maxSort, func(s *scanner) error {
		k := Key{Descending: s.take("-")}
		var err error
		if k.Path, err = s.single(); err != nil {
			return err
		}
		k.Quantity = s.take(":quantity")
		q.Sort = append(q.Sort, k)
		return nil
	})
}

func (q *Query) parseWhere(text string) error {
	operands := 0
	return eachPart(text, maxConditions, func(s *scanner) error {
		c, err := s.parseCondition()
		q.Where = append(q.Where, c)
		if operands += len(c.values); err == nil && operands > maxOperands {
			err = fmt.Errorf("conditions have more than %d values: split the request", maxOperands)
		}
		return err
	})
}

// Timed reports whether the objects of the list depend on the time of the request.
func (q *Query) Timed() bool {
	return slices.ContainsFunc(q.Where, func(c Condition) bool { return c.op >= less && c.Path.isColumn && c.values[0].isAge })
}

func (q *Query) parseOffset(text string) error {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 {
		return fmt.Errorf("%q is not a whole number from 0 to 2147483647", text)
	}
	q.Offset = int(n)
	return nil
}

func (q *Query) parseFields(text string) error {
	q.Fields = new(json.Projection)
	return eachPart(text, maxFields, func(s *scanner) error {
		p, err := s.path()
		if err != nil {
			return err
		}
		for _, step := range p.steps {
			if step.Kind != json.Member && step.Kind != json.Every {
				return fmt.Errorf("%s selects one element of a list: use [*] or omit the brackets", p)
			}
		}
		q.Fields.Add(p.steps)
		return nil
	})
}

func (q *Query) parseCounts(text string) error {
	return eachPart(text, maxCounts, func(s *scanner) error {
		p, err := s.single()
		q.CountBy = append(q.CountBy, p)
		return err
	})
}

// parameters parse the parameters of a query, by api.QueryParameter.
var parameters = [...]func(q *Query, text string) error{
	api.QuerySortBy:  (*Query).parseSort,
	api.QueryOffset:  (*Query).parseOffset,
	api.QueryWhere:   (*Query).parseWhere,
	api.QueryFields:  (*Query).parseFields,
	api.QueryCountBy: (*Query).parseCounts,
}

// Token is the continue token of a list with a query. Other servers reject it: they would continue
// elsewhere.
type Token struct {
	// ResourceVersion is the version that all pages show.
	ResourceVersion uint64 `json:"rv"`
	// Offset is how many objects of the list precede the page.
	Offset int `json:"offset"`
	// At is the time of the first page in seconds since 1970, if the query is Timed.
	At int64 `json:"at,omitempty"`
	// Within is the Within of api.ContinueToken.
	Within string `json:"within,omitempty"`
}

// tokenVersion identifies the format. kube-apiserver's tokens have another.
const tokenVersion = "kubeweir.io/query/v1"

type wireToken struct {
	Version string `json:"v"`
	Token
	// List is a hash of the list that the token continues.
	List string `json:"list"`
}

// Encode returns the token for the list that selected (its namespace and selectors) and q describe.
func (t Token) Encode(q *Query, selected string) string {
	data, err := stdjson.Marshal(wireToken{tokenVersion, t, q.hash(selected)})
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	return base64.RawURLEncoding.EncodeToString(data)
}

// Decode parses a token of the same list. The error is a 400.
func (q *Query) Decode(token, selected string) (Token, error) {
	data, err := base64.RawURLEncoding.DecodeString(token)
	var wire wireToken
	if err == nil {
		err = stdjson.Unmarshal(data, &wire)
	}
	switch {
	case err != nil || wire.Version != tokenVersion || wire.ResourceVersion == 0 || wire.Offset < 0:
		return Token{}, apierrors.NewBadRequest("parameter continue: the token is not that of a list with sortBy, where, offset, fields or countBy: begin such a list without a token")
	case wire.List != q.hash(selected):
		return Token{}, apierrors.NewBadRequest("parameter continue: the token belongs to another list: repeat the sortBy, where and selectors of its first page")
	case q.Offset > 0:
		return Token{}, apierrors.NewBadRequest("parameter offset: it cannot be combined with continue: omit one of them")
	}
	return wire.Token, nil
}

// hash returns a hash of everything that determines the objects and their order.
func (q *Query) hash(selected string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(selected + "\x00" + q.order))
	return strconv.FormatUint(h.Sum64(), 36)
}
