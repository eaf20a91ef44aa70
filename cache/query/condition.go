package query

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubeweir/kubeweir/internal/encoding/json"
)

// Condition is a condition on the value at a path.
type Condition struct {
	Path Path
	op   operator
	// values are the operands: one, those of in and notin, or none for has and hasNot.
	values []operand
}

type operator uint8

const (
	has operator = iota
	hasNot
	oneOf // in, or = for one value
	noneOf
	contains
	containsNot
	less
	atMost
	greater
	atLeast
)

// operators are the spellings of operators that follow a path. A spelling comes before its
// prefixes.
var operators = []spelling{{"==", oneOf}, {"=", oneOf}, {"!=", noneOf}, {"!~", containsNot}, {"~", contains}, {"<=", atMost}, {"<", less}, {">=", atLeast}, {">", greater}}

type spelling struct {
	text string
	op   operator
}

// operand is a value to compare with, parsed in every way that it can be.
type operand struct {
	text     string
	number   Value // None if it is not a JSON number
	quantity float64
	time     time.Time // zero if it is not a time
	// age is an age in seconds, if isAge.
	age   float64
	isAge bool
}

// parseCondition parses a condition.
func (s *scanner) parseCondition() (c Condition, err error) {
	if s.take("!") {
		c.op = hasNot
	}
	if c.Path, err = s.single(); err != nil {
		return c, err
	}
	s.spaces()
	if c.op == hasNot || s.peek() == ',' || s.peek() == 0 {
		return c, nil
	}
	for _, set := range []spelling{{"in", oneOf}, {"notin", noneOf}} {
		begin := s.at
		if s.take(set.text) {
			if s.spaces(); s.take("(") {
				c.op = set.op
				c.values, err = s.operands()
				return c, err
			}
		}
		s.at = begin
	}
	i := slices.IndexFunc(operators, func(o spelling) bool { return s.take(o.text) })
	if i < 0 {
		return c, s.unexpected("one of = != ~ !~ < <= > >= in notin")
	}
	c.op = operators[i].op
	s.spaces()
	one, err := s.operand(",")
	if err != nil {
		return c, err
	}
	c.values = []operand{one}
	if c.op >= less && one.time.IsZero() {
		if _, ok := parseQuantity(one.text); !ok && !(c.Path.isColumn && one.isAge) {
			return c, fmt.Errorf("%q cannot be ordered: use a number, a quantity, a time (2026-01-31T12:00:00Z) or, for a column, an age (3d12h)", one.text)
		}
	}
	return c, nil
}

// operands parses a list of values after its opening parenthesis.
func (s *scanner) operands() (all []operand, err error) {
	for {
		s.spaces()
		one, err := s.operand(",)")
		if err != nil {
			return nil, err
		}
		all = append(all, one)
		if s.spaces(); s.take(")") {
			return all, nil
		}
		if !s.take(",") {
			return nil, s.unexpected("a comma or the ) that ends the values")
		}
	}
}

// operand parses a value: a quoted one, or everything up to one of the bytes in ends, without
// surrounding spaces.
func (s *scanner) operand(ends string) (o operand, err error) {
	if c := s.peek(); c == '\'' || c == '"' {
		if o.text, err = s.quoted(); err != nil {
			return o, err
		}
	} else {
		text := s.rest()
		if i := strings.IndexAny(text, ends); i >= 0 {
			text = text[:i]
		}
		s.at += len(text)
		o.text = strings.TrimRight(text, " ")
	}
	o.number = numberOf(o.text)
	o.quantity, _ = parseQuantity(o.text)
	o.time, _ = time.Parse(time.RFC3339, o.text)
	o.age, o.isAge = parseAge(o.text)
	return o, nil
}

// numberOf parses a JSON number. It returns None if text is not one.
func numberOf(text string) Value {
	if text == "" || text[0] != '-' && (text[0] < '0' || text[0] > '9') {
		return Value{}
	}
	if _, ok := parseQuantity(text); !ok || strings.TrimLeft(text, "-+.0123456789eE") != "" {
		return Value{}
	}
	return ValueOf([]byte(text))
}

// single parses a path to one value, or the name of a column.
func (s *scanner) single() (Path, error) {
	switch c := s.peek(); {
	case c == '\'' || c == '"':
		name, err := s.quoted()
		return Path{isColumn: true, text: strings.ToLower(name)}, err
	case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z':
		name := s.while(func(c byte) bool { return plainByte(c) && c != '/' })
		return Path{isColumn: true, text: strings.ToLower(name)}, nil
	}
	p, err := s.path()
	if err == nil && slices.ContainsFunc(p.steps, func(s json.Step) bool { return s.Kind == json.Every }) {
		err = errors.New("[*] selects several values: select one, such as [0] or [?(@.type==\"Ready\")]")
	}
	return p, err
}

// Matches reports whether a value fulfills the condition at a point in time.
func (c *Condition) Matches(v Value, now time.Time) bool {
	switch c.op {
	case has:
		return v.Kind != None
	case hasNot:
		return v.Kind == None
	case oneOf:
		return c.among(v)
	case noneOf:
		return !c.among(v)
	case contains:
		return v.Kind != None && strings.Contains(v.Text, c.values[0].text)
	case containsNot:
		return v.Kind == None || !strings.Contains(v.Text, c.values[0].text)
	}
	order, ok := c.values[0].compare(v, now)
	switch {
	case !ok:
		return false
	case c.op == less:
		return order < 0
	case c.op == atMost:
		return order <= 0
	case c.op == greater:
		return order > 0
	}
	return order >= 0
}

// among reports whether v is one of the operands.
func (c *Condition) among(v Value) bool {
	return v.Kind != None && slices.ContainsFunc(c.values, func(o operand) bool {
		if v.Kind == Number && o.number.Kind == Number {
			return Compare(v, o.number) == 0
		}
		return v.Text == o.text
	})
}

// compare compares v with the operand: as times if the operand is one, else as ages or quantities.
// ok is false if v is not comparable.
func (o *operand) compare(v Value, now time.Time) (order int, ok bool) {
	if v.Kind == Age {
		return cmp.Compare(float64(now.Unix())+v.number, o.age), o.isAge
	}
	if !o.time.IsZero() {
		t, err := time.Parse(time.RFC3339, v.Text)
		return t.Compare(o.time), v.Kind == String && err == nil
	}
	n, ok := v.quantity()
	return cmp.Compare(n, o.quantity), ok
}
