package config

import (
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// setting is what a field of the configuration is to its user: a key of the file, a
// flag, and words about both. The help, the man pages, `kubeweir config defaults`, the
// reference and validation are all made of it.
type setting struct {
	path  string // in the file: limits.maxInFlight
	flag  string // "" for what only the file can say; names that kube-apiserver has are kube-apiserver's
	value any    // pointer to the field
	// bounds are the bounds of a number, a size or a duration; nil for other types.
	bounds *bounds
	// usage says what it is in one phrase; the word in backquotes is what the flag's
	// value is called, "file" and "folder" of what is a path.
	usage string
	// cost says what it costs, whom, and what happens at the bound; "" for nothing.
	cost string
}

// section is the settings under one heading.
type section struct {
	title    string
	settings []setting
}

// bounds are the least and the most that a number may be; a most of 0 is no bound.
type bounds struct{ least, most int64 }

func atLeast[T ~int | ~int64](least T) *bounds { return &bounds{least: int64(least)} }

func between[T ~int | ~int64](least, most T) *bounds { return &bounds{int64(least), int64(most)} }

// check reports a number that is out of bounds.
func (s *setting) check(o *origins) {
	if s.bounds == nil {
		return
	}
	v := reflect.ValueOf(s.value).Elem()
	switch n := v.Int(); {
	case n < s.bounds.least:
		o.report(s.path, "must be at least %s, not %s", s.show(s.bounds.least), s.show(n))
	case s.bounds.most > 0 && n > s.bounds.most:
		o.report(s.path, "must be at most %s, not %s", s.show(s.bounds.most), s.show(n))
	}
}

// show writes n as the setting's value.
func (s *setting) show(n int64) string {
	switch reflect.TypeOf(s.value).Elem() {
	case durationType:
		return durationText(time.Duration(n))
	case bytesType:
		return Bytes(n).String()
	}
	return strconv.FormatInt(n, 10)
}

// allowed says in words what the value may be, "" if its kind says all.
func (s *setting) allowed() string {
	t := reflect.TypeOf(s.value).Elem()
	switch {
	case s.bounds != nil && s.bounds.most > 0:
		return "from " + s.show(s.bounds.least) + " to " + s.show(s.bounds.most)
	case s.bounds != nil:
		return "at least " + s.show(s.bounds.least)
	case t.Implements(choiceType):
		return alternatives(choicesOf(t))
	}
	return ""
}

// placeholder is what the value is called: the word in backquotes.
func (s *setting) placeholder() string {
	_, after, _ := strings.Cut(s.usage, "`")
	word, _, _ := strings.Cut(after, "`")
	return word
}

// file is the path of a file or folder that the setting is, nil if it is none. Other
// values of it are "" for none, and "-".
func (s *setting) file() *string {
	if word := s.placeholder(); word == "file" || word == "folder" {
		return s.value.(*string)
	}
	return nil
}

// namedOnly is the name of a flag's value where it is no part of the sentence.
var namedOnly = regexp.MustCompile(" \\(`[a-z]+`\\)")

// text is the usage, and the cost, as sentences.
func (s *setting) text() string {
	text := sentence(strings.ReplaceAll(namedOnly.ReplaceAllString(s.usage, ""), "`", ""))
	if s.cost != "" {
		text += " " + sentence(s.cost)
	}
	return text
}

// sentence gives a phrase a capital and a full stop.
func sentence(phrase string) string {
	if phrase == "" {
		return ""
	}
	phrase = strings.ToUpper(phrase[:1]) + phrase[1:]
	if strings.HasSuffix(phrase, ".") {
		return phrase
	}
	return phrase + "."
}

// choices are the values of a flag if there are few.
func (s *setting) choices() []string {
	switch t := reflect.TypeOf(s.value).Elem(); {
	case t.Implements(choiceType):
		return choicesOf(t)
	case t.Kind() == reflect.Bool:
		return []string{"true", "false"}
	}
	return nil
}
