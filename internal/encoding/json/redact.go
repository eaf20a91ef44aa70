package json

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"errors"
	"slices"
	"strconv"
	"strings"
)

// maxRedactDepth is how deep JSON may nest that is redacted: what is embedded is looked at
// once more for each Secret around it.
const maxRedactDepth = 512

var errUnredactable = errors.New("it is no well-formed JSON, or nests too deep, and what is not understood is not redacted")

// Redact returns an object, a list, a Table or a watch event without the secrets in it; b
// itself if there are none. It goes by names, wherever in b they stand and whatever the
// type around them is, so that it holds for custom resources that have pod templates or
// manifests in them, and for fields newer than this code:
//
//   - Of an object of the kind Secret, the values in data and stringData are replaced by
//     their length ("12 bytes", in data in base64, as clients expect it there). secret says
//     that b is a Secret, or has Secrets, even if that does not stand in it: the items of
//     lists do not say their kind.
//   - Of the environment (a member env, or whose name ends so) what variables are set to:
//     the member value of objects in an array or a map, what is behind = in strings, and
//     the strings and numbers in a map. Where a value is taken from is left.
//   - Annotations that have a copy of the object, as what was last applied.
//   - managedFields: sets there have values in the names of their members.
//
// What it cannot read is an error. Names count in lower and upper case, as decoders take
// them. The result may share memory with b.
func Redact(b []byte, secret bool) ([]byte, error) {
	r := redactor{b: b}
	root := anywhere
	if secret {
		root = secrets
	}
	end := r.value(skipSpace(b, 0), maxRedactDepth, root)
	if end < 0 || skipSpace(b, end) != len(b) {
		return nil, errUnredactable
	}
	return r.apply(), nil
}

// MayRedact reports whether anything at a path, whose names dots part, may be redacted, so
// that a selector by it would tell what Redact does not.
func MayRedact(path string) bool {
	for name := range strings.SplitSeq(path, ".") {
		switch meaningOf([]byte(name)) {
		case memberData, memberStringData, memberValue, memberAnnotations, memberManagedFields, memberEnvironment:
			return true
		}
	}
	return false
}

// redactor is one run of Redact. Its methods take and return positions as those of skip.go
// do.
type redactor struct {
	b     []byte
	edits []edit
}

// edit replaces a part of the text. Of two that are not apart one has the other in it.
type edit struct {
	from, to int
	with     string
}

// redactPlace says what a value is by where it stands.
type redactPlace uint8

const (
	anywhere redactPlace = iota
	// secrets is a Secret, or what has Secrets below items, rows or object.
	secrets
	// environment is all variables of an environment, variable is one.
	environment
	variable
	annotations
)

// meaning is what the name of a member says here.
type meaning uint8

const (
	memberOther meaning = iota
	memberKind
	memberData
	memberStringData
	memberValue
	memberAnnotations
	memberManagedFields
	memberEnvironment
	// memberItems are those in which a list, a Table or an event has objects.
	memberItems
	memberRows
	memberObject
)

// environmentNames are what names of environments end in, in lower case.
var environmentNames = [...]string{"env", "envs", "envvar", "envvars", "environment", "environmentvariables"}

// meaningOf is that of a name, in lower or upper case.
func meaningOf(name []byte) meaning {
	var room [24]byte
	if len(name) > len(room) {
		name = name[len(name)-len(room):] // its end is all that may count
	}
	lower := room[:len(name)]
	for i, c := range name {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		lower[i] = c
	}
	switch string(lower) {
	case "kind":
		return memberKind
	case "data":
		return memberData
	case "stringdata":
		return memberStringData
	case "value":
		return memberValue
	case "annotations":
		return memberAnnotations
	case "managedfields":
		return memberManagedFields
	case "items":
		return memberItems
	case "rows":
		return memberRows
	case "object":
		return memberObject
	}
	for _, suffix := range environmentNames {
		if bytes.HasSuffix(lower, []byte(suffix)) {
			return memberEnvironment
		}
	}
	return memberOther
}

// placeIn is the place of the value of a member of an object that stands at p.
func (m meaning) placeIn(p redactPlace) redactPlace {
	switch {
	case p == secrets && (m == memberItems || m == memberRows || m == memberObject):
		return secrets
	case p == annotations:
		return anywhere
	case m == memberEnvironment:
		return environment
	case m == memberAnnotations:
		return annotations
	case p == environment:
		return variable
	}
	return anywhere
}

// value redacts the value at i.
func (r *redactor) value(i, depth int, p redactPlace) int {
	switch {
	case i >= len(r.b):
		return ^i
	case r.b[i] == '{':
		return r.object(i, depth, p)
	case r.b[i] == '[':
		return r.array(i, depth, p)
	}
	end := skipValue(r.b, i, depth)
	if end >= 0 && (p == variable || p == environment) {
		r.assignment(i, end)
	}
	return end
}

// assignment redacts NAME=value, an element of an environment, or all of one in a text.
func (r *redactor) assignment(i, end int) {
	text, ok := Text(r.b[i:end])
	if name, _, assigned := strings.Cut(text, "="); ok && assigned {
		r.replace(i, end, quote(name+"="))
	}
}

func (r *redactor) array(i, depth int, p redactPlace) int {
	b := r.b
	switch p {
	case environment, variable:
		p = variable
	case annotations:
		p = anywhere
	}
	if depth--; depth < 0 {
		return ^i
	}
	if i = skipSpace(b, i+1); i < len(b) && b[i] == ']' {
		return i + 1
	}
	for {
		if i = r.value(i, depth, p); i < 0 {
			return i
		}
		var more bool
		if i, more = nextMember(b, i, ']'); !more {
			return i
		}
	}
}

// span is where a value is.
type span struct{ from, to int }

// object redacts the object at i. What its kind is may stand behind what it has.
func (r *redactor) object(i, depth int, p redactPlace) int {
	b := r.b
	if depth--; depth < 0 {
		return ^i
	}
	if i = skipSpace(b, i+1); i < len(b) && b[i] == '}' {
		return i + 1
	}
	var data, stringData, items, set []span
	isSecret, isSecrets, isSchema := p == secrets, false, false
	dropped := dropper{r: r, kept: -1, pending: -1}
	for more := true; more; {
		start, mark := i, len(r.edits)
		key, value := memberAt(b, i)
		if value < 0 {
			return ^i
		}
		m := meaningOf(key)
		if i = r.value(value, depth, m.placeIn(p)); i < 0 {
			return i
		}
		if p == environment {
			set = append(set, span{value, i})
			isSchema = isSchema || isSchemaType(key, b[value:i])
		}
		switch m {
		case memberKind:
			kind, _ := Text(b[value:i])
			isSecret, isSecrets = isSecret || strings.EqualFold(kind, "Secret"), isSecrets || strings.EqualFold(kind, "SecretList")
		case memberData:
			data = append(data, span{value, i})
		case memberStringData:
			stringData = append(stringData, span{value, i})
		case memberItems:
			items = append(items, span{value, i})
		}
		drop := m == memberManagedFields && b[value] == '[' || m == memberValue && p == variable || p == annotations && hasCopy(key)
		dropped.member(start, i, mark, drop)
		i, more = nextMember(b, i, '}')
	}
	dropped.end()
	if i < 0 {
		return i
	}
	if isSecret {
		r.conceal(data, true)
		r.conceal(stringData, false)
	}
	if isSecrets {
		r.concealItems(items)
	}
	if !isSchema {
		r.unset(set)
	}
	return i
}

// dropper leaves members out of an object, each with one of the commas beside it.
type dropper struct {
	r *redactor
	// kept is where the last member ends, if any before it is kept, else -1; pending where
	// the first member begins, while none is kept and it is left out, else -1; last is where
	// the last member ends.
	kept, pending, last int
}

// member is told of each member, whose edits are those from mark on.
func (d *dropper) member(start, end, mark int, drop bool) {
	switch {
	case drop && d.kept >= 0:
		d.r.edits = d.r.edits[:mark]
		d.r.replace(d.kept, end, "")
	case drop && d.pending < 0:
		d.pending = start
	case !drop && d.pending >= 0:
		d.r.replace(d.pending, start, "")
		d.pending = -1
	}
	if d.last = end; !drop || d.kept >= 0 {
		d.kept = end
	}
}

// end is told of the end of the object.
func (d *dropper) end() {
	if d.pending >= 0 {
		d.r.replace(d.pending, d.last, "")
	}
}

// unset takes away what variables are set to by name: a text becomes empty, a number null. What
// is neither was looked through before.
func (r *redactor) unset(variables []span) {
	for _, s := range variables {
		switch c := r.b[s.from]; {
		case c == '"':
			r.replace(s.from, s.to, `""`)
		case c == '-' || '0' <= c && c <= '9':
			r.replace(s.from, s.to, "null")
		}
	}
}

// isSchemaType reports whether a member is the type that the description of a field by a JSON
// schema has. What looks like an environment is none then.
func isSchemaType(key, value []byte) bool {
	if string(key) != "type" {
		return false
	}
	switch text, _ := Text(value); text {
	case "array", "boolean", "integer", "number", "object", "string":
		return true
	}
	return false
}

// conceal replaces the values in data, or stringData, by their length.
func (r *redactor) conceal(maps []span, encoded bool) {
	for _, m := range maps {
		if r.b[m.from] != '{' {
			r.concealOne(m, encoded)
			continue
		}
		r.members(m.from, func(_ []byte, value span) { r.concealOne(value, encoded) })
	}
}

// concealItems conceals what the Secrets of a list hold.
func (r *redactor) concealItems(lists []span) {
	for _, list := range lists {
		if r.b[list.from] != '[' {
			continue
		}
		i := skipSpace(r.b, list.from+1)
		for more := r.b[i] != ']'; more; {
			if r.b[i] == '{' {
				r.members(i, func(key []byte, value span) {
					if m := meaningOf(key); m == memberData || m == memberStringData {
						r.conceal([]span{value}, m == memberData)
					}
				})
			}
			i = skipValue(r.b, i, maxRedactDepth)
			i, more = nextMember(r.b, i, ']')
		}
	}
}

// members calls visit for each member of an object that was looked through before.
func (r *redactor) members(i int, visit func(key []byte, value span)) {
	i = skipSpace(r.b, i+1)
	for more := r.b[i] != '}'; more; {
		key, value := memberAt(r.b, i)
		end := skipValue(r.b, value, maxRedactDepth)
		visit(key, span{value, end})
		i, more = nextMember(r.b, end, '}')
	}
}

// concealOne replaces a value by its length; encoded says that it is in base64.
func (r *redactor) concealOne(s span, encoded bool) {
	token := r.b[s.from:s.to]
	if token[0] == 'n' {
		return // null
	}
	n := len(token)
	if text, ok := Text(token); ok {
		if n = len(text); encoded {
			digits := len(strings.TrimRight(text, "=\r\n"))
			n = base64.RawStdEncoding.DecodedLen(digits - strings.Count(text[:digits], "\n") - strings.Count(text[:digits], "\r"))
		}
	}
	length := strconv.Itoa(n) + " bytes"
	if encoded {
		length = base64.StdEncoding.EncodeToString([]byte(length))
	}
	r.replace(s.from, s.to, quote(length))
}

// hasCopy reports whether an annotation of this name has a copy of the object that it is of,
// or the command that made it.
func hasCopy(name []byte) bool {
	lower := strings.ToLower(string(name))
	for _, part := range []string{"last-applied", "lastapplied", "last_applied", "last-handled"} {
		if strings.Contains(lower, part) {
			return true
		}
	}
	return strings.HasSuffix(lower, "/applied") || strings.HasPrefix(lower, "kapp.k14s.io/original") || lower == "kubernetes.io/change-cause"
}

func (r *redactor) replace(from, to int, with string) {
	r.edits = append(r.edits, edit{from, to, with})
}

// apply makes the text with all edits, of which those in others do not count.
func (r *redactor) apply() []byte {
	if len(r.edits) == 0 {
		return r.b
	}
	slices.SortStableFunc(r.edits, func(x, y edit) int {
		return cmp.Or(cmp.Compare(x.from, y.from), cmp.Compare(y.to, x.to))
	})
	size, at, outer := len(r.b), 0, r.edits[:0]
	for _, e := range r.edits {
		if e.from < at {
			continue
		}
		size += len(e.with) - (e.to - e.from)
		at, outer = e.to, append(outer, e)
	}
	out := make([]byte, 0, size)
	at = 0
	for _, e := range outer {
		out = append(append(out, r.b[at:e.from]...), e.with...)
		at = e.to
	}
	return append(out, r.b[at:]...)
}
