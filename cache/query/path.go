package query

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/kubeweir/kubeweir/internal/encoding/json"
)

// maxSteps and maxPath bound a path, in steps and in bytes.
const (
	maxSteps = 32
	maxPath  = 512
)

// Path leads to one value in an object, as in kubectl's --sort-by: .metadata.name,
// .metadata.labels['app.kubernetes.io/name'], .spec.containers[0].image,
// .status.conditions[?(@.type=="Ready")].status, optionally in braces.
//
// Or it is the name of a column of the resource's Table, as kubectl get shows it: status,
// 'nominated node'.
type Path struct {
	steps    []json.Step // none for a column
	isColumn bool
	text     string // of a column its name, in lower case
}

// String returns the normalized path: equal paths have equal strings.
func (p Path) String() string { return p.text }

// scanner parses the value of a parameter.
type scanner struct {
	text string
	at   int
}

func (s *scanner) rest() string { return s.text[s.at:] }

// peek returns the next byte, 0 at the end. Values are printable, so they do not contain 0.
func (s *scanner) peek() byte {
	if s.at == len(s.text) {
		return 0
	}
	return s.text[s.at]
}

// take consumes a prefix if it comes next.
func (s *scanner) take(prefix string) bool {
	if !strings.HasPrefix(s.rest(), prefix) {
		return false
	}
	s.at += len(prefix)
	return true
}

// while consumes the bytes that belong to a text.
func (s *scanner) while(belongs func(c byte) bool) string {
	begin := s.at
	for s.at < len(s.text) && belongs(s.text[s.at]) {
		s.at++
	}
	return s.text[begin:s.at]
}

func (s *scanner) spaces() { s.while(func(c byte) bool { return c == ' ' }) }

// unexpected returns the error about the next input.
func (s *scanner) unexpected(wanted string) error {
	if s.at == len(s.text) {
		return fmt.Errorf("unexpected end: expected %s", wanted)
	}
	rest := s.rest()
	if len(rest) > 20 {
		rest = rest[:20] + "..."
	}
	return fmt.Errorf("at character %d: expected %s, got %q", s.at+1, wanted, rest)
}

// path parses a path.
func (s *scanner) path() (Path, error) {
	begin, braces := s.at, s.take("{")
	if braces {
		s.spaces()
	}
	s.take("$")
	if c := s.peek(); c != '.' && c != '[' {
		return Path{}, s.unexpected("a path, such as .metadata.name")
	}
	var steps []json.Step
	for s.peek() == '.' || s.peek() == '[' {
		step, err := s.step()
		if err != nil {
			return Path{}, err
		}
		steps = append(steps, step)
	}
	if braces {
		if s.spaces(); !s.take("}") {
			return Path{}, s.unexpected("the } that ends the path")
		}
	}
	if len(steps) > maxSteps || s.at-begin > maxPath {
		return Path{}, fmt.Errorf("path too long: the limits are %d steps and %d characters", maxSteps, maxPath)
	}
	return Path{steps: steps, text: spell(steps)}, nil
}

// step parses one step.
func (s *scanner) step() (json.Step, error) {
	if s.take("[") {
		return s.bracket()
	}
	s.at++ // the dot
	switch {
	case s.peek() == '.':
		return json.Step{}, errors.New("recursive descent (..) is not supported: name each step")
	case s.peek() == '*':
		return json.Step{}, errors.New("wildcard members (.*) are not supported: name one")
	}
	name := s.unescaped(plainByte) // as in kubectl: .metadata.labels.kubernetes\.io/os
	if name == "" {
		return json.Step{}, s.unexpected("the name of a field")
	}
	return json.Step{Kind: json.Member, Name: name}, nil
}

// plainByte reports whether a name may contain a byte without brackets.
func plainByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-' || c == '/'
}

// bracket parses a step after its opening bracket.
func (s *scanner) bracket() (step json.Step, err error) {
	switch c := s.peek(); {
	case c == '\'' || c == '"':
		step.Name, err = s.quoted()
	case s.take("*"):
		step.Kind = json.Every
	case s.take("?(@."):
		step, err = s.matching()
	case '0' <= c && c <= '9':
		digits := s.while(func(c byte) bool { return '0' <= c && c <= '9' })
		step.Kind = json.Element
		if step.Index, err = strconv.Atoi(digits); err != nil || step.Index > 1<<20 {
			err = fmt.Errorf("invalid index %s", digits)
		}
	default:
		err = s.unexpected(`a name in quotes, a number, * or ?(@.type=="Ready")`)
	}
	if err == nil && !s.take("]") {
		err = s.unexpected("the ] that ends the step")
	}
	return step, err
}

// matching parses the rest of ?(@.type=="Ready").
func (s *scanner) matching() (json.Step, error) {
	step := json.Step{Kind: json.Matching, Name: s.while(plainByte)}
	if step.Name == "" {
		return step, s.unexpected("the name of a field")
	}
	if s.spaces(); !s.take("==") {
		return step, s.unexpected(`== and a text in quotes, as in ?(@.type=="Ready")`)
	}
	s.spaces()
	if c := s.peek(); c != '\'' && c != '"' {
		return step, s.unexpected("a text in quotes")
	}
	var err error
	if step.Value, err = s.quoted(); err != nil {
		return step, err
	}
	if !s.take(")") {
		return step, s.unexpected("the ) that ends the condition")
	}
	return step, nil
}

// quoted parses a quoted text, in which a backslash escapes a quote or a backslash.
func (s *scanner) quoted() (string, error) {
	quote := s.peek()
	s.at++
	text := s.unescaped(func(c byte) bool { return c != quote })
	if !s.take(string(quote)) {
		return "", fmt.Errorf("missing closing %c", quote)
	}
	return text, nil
}

// unescaped consumes the bytes that belong to a text, and those that a backslash precedes. It
// returns them without the backslashes.
func (s *scanner) unescaped(belongs func(c byte) bool) string {
	var text strings.Builder
	for {
		c := s.peek()
		if c == '\\' && s.at+1 < len(s.text) {
			s.at++
			c = s.peek()
		} else if c == 0 || !belongs(c) {
			return text.String()
		}
		text.WriteByte(c)
		s.at++
	}
}

// spell formats steps as scanner.path parses them.
func spell(steps []json.Step) string {
	var b strings.Builder
	for _, s := range steps {
		switch s.Kind {
		case json.Member:
			if (&scanner{text: s.Name}).while(plainByte) == s.Name && s.Name != "" {
				b.WriteString("." + s.Name)
			} else {
				b.WriteString("[" + quote(s.Name) + "]")
			}
		case json.Element:
			b.WriteString("[" + strconv.Itoa(s.Index) + "]")
		case json.Every:
			b.WriteString("[*]")
		case json.Matching:
			b.WriteString("[?(@." + s.Name + "==" + quote(s.Value) + ")]")
		}
	}
	return b.String()
}

func quote(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(text) + "'"
}
