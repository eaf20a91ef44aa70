package config

import (
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// setting describes a field of the configuration to its user: its key in the file, its flag, and
// the texts of both. The help, the man pages, `kubeweir config defaults`, the reference and
// validation are all generated from settings.
type setting struct {
	path  string // in the file: limits.maxInFlight
	flag  string // "" for what only the file can say; names that kube-apiserver has are kube-apiserver's
	value any    // pointer to the field
	// bounds are the bounds of a number, a size or a duration; nil for other types.
	bounds *bounds
	// usage describes the setting in one phrase. A word in backquotes is the placeholder of the
	// flag's value; "file" and "folder" mark paths.
	usage string
	// cost describes what the setting costs and what happens at its bound; "" if nothing.
	cost string
}

// section is a group of settings under one heading.
type section struct {
	title    string
	settings []setting
}

// bounds are the lower and upper bound of a number; an upper bound of 0 means none.
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

// show formats n as the setting's value.
func (s *setting) show(n int64) string {
	switch reflect.TypeOf(s.value).Elem() {
	case durationType:
		return durationText(time.Duration(n))
	case bytesType:
		return Bytes(n).String()
	}
	return strconv.FormatInt(n, 10)
}

// allowed describes the allowed values, or returns "" if the type says enough.
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

// placeholder returns the placeholder of the value: the word in backquotes.
func (s *setting) placeholder() string {
	_, after, _ := strings.Cut(s.usage, "`")
	word, _, _ := strings.Cut(after, "`")
	return word
}

// files returns the setting's values if they are paths of files or folders. A value may also be ""
// for none, or "-".
func (s *setting) files() (paths []*string) {
	switch s.placeholder() {
	case "file", "folder":
		return []*string{s.value.(*string)}
	case "files":
		list := *s.value.(*[]string)
		for i := range list {
			paths = append(paths, &list[i])
		}
	}
	return paths
}

// namedOnly matches a placeholder that is not part of the sentence.
var namedOnly = regexp.MustCompile(" \\(`[a-z]+`\\)")

// text returns the usage and the cost as sentences.
func (s *setting) text() string {
	text := sentence(strings.ReplaceAll(namedOnly.ReplaceAllString(s.usage, ""), "`", ""))
	if s.cost != "" {
		text += " " + sentence(s.cost)
	}
	return text
}

// sentence capitalizes a phrase and adds a period.
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

// choices returns the values of a setting that has few.
func (s *setting) choices() []string {
	switch t := reflect.TypeOf(s.value).Elem(); {
	case t.Implements(choiceType):
		return choicesOf(t)
	case t.Kind() == reflect.Bool:
		return []string{"true", "false"}
	}
	return nil
}
