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

// maxRedactDepth is the maximum depth of JSON to be redacted: an embedded object is scanned once
// more for each Secret around it.
const maxRedactDepth = 512

var errUnredactable = errors.New("malformed JSON, or nested too deeply: it cannot be redacted")

// Redact returns an object, a list, a Table or a watch event without the secrets in it; b itself if
// there are none. It matches names wherever they occur in b, whatever the type around them. So it
// also covers custom resources that contain pod templates or manifests, and fields newer than this
// code:
//
//   - In objects of the kind Secret it replaces the values in data and stringData by their
//     length ("12 bytes", in data in base64, as clients expect it there). secret says that b
//     is a Secret, or contains Secrets, even if b does not say so: the items of lists do not
//     have a kind.
//   - In environments (a member env, or whose name ends with it) it removes the values of
//     variables: the member value of objects in an array or a map, what follows = in strings,
//     and the strings and numbers in a map. References to values stay.
//   - It removes annotations with a copy of the object, such as the last applied one.
//   - It removes managedFields: their sets contain values in the names of members.
//
// Malformed input is an error. Names match case-insensitively, like in decoders. The result may
// share memory with b.
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

// MayRedact reports whether Redact may change anything at a path of names joined by dots. A
// selector on such a path would disclose what Redact hides.
func MayRedact(path string) bool {
	for name := range strings.SplitSeq(path, ".") {
		switch meaningOf([]byte(name)) {
		case memberData, memberStringData, memberValue, memberAnnotations, memberManagedFields, memberEnvironment:
			return true
		}
	}
	return false
}

// redactor is one run of Redact. Its methods take and return positions like those of skip.go.
type redactor struct {
	b     []byte
	edits []edit
}

// edit replaces a part of the text. Two edits are either disjoint or nested.
type edit struct {
	from, to int
	with     string
}

// position classifies a value by its position in the object.
type position uint8

const (
	anywhere position = iota
	// secrets is a Secret, or contains Secrets below items, rows or object.
	secrets
	// environment is the set of all variables, variable is one of them.
	environment
	variable
	annotations
)

// meaning is the meaning of a member's name.
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
	// memberItems are the members in which a list, a Table or an event has objects.
	memberItems
	memberRows
	memberObject
)

// environmentNames are suffixes of the names of environments, in lower case.
var environmentNames = [...]string{"env", "envs", "envvar", "envvars", "environment", "environmentvariables"}

// meaningOf returns the meaning of a name, in lower or upper case.
func meaningOf(name []byte) meaning {
	var room [24]byte
	if len(name) > len(room) {
		name = name[len(name)-len(room):] // only the end of the name matters
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

// positionIn returns the place of the value of a member of an object at p.
func (m meaning) positionIn(p position) position {
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
func (r *redactor) value(i, depth int, p position) int {
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

// assignment redacts NAME=value, an element of an environment, or a whole environment given as
// text.
func (r *redactor) assignment(i, end int) {
	text, ok := Text(r.b[i:end])
	if name, _, assigned := strings.Cut(text, "="); ok && assigned {
		r.replace(i, end, quote(name+"="))
	}
}

func (r *redactor) array(i, depth int, p position) int {
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

// span is the position of a value.
type span struct{ from, to int }

// object redacts the object at i. Its kind may follow the members that depend on it.
func (r *redactor) object(i, depth int, p position) int {
	b := r.b
	if depth--; depth < 0 {
		return ^i
	}
	if i = skipSpace(b, i+1); i < len(b) && b[i] == '}' {
		return i + 1
	}
	var data, stringData, items, set []span
	isSecret, isSecrets, isSchema := p == secrets, false, false
	dropped := dropper{r: r, copied: -1, pending: -1}
	for more := true; more; {
		start, mark := i, len(r.edits)
		key, value := memberAt(b, i)
		if value < 0 {
			return ^i
		}
		m := meaningOf(key)
		if i = r.value(value, depth, m.positionIn(p)); i < 0 {
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

// dropper removes members from an object, each with one adjacent comma.
type dropper struct {
	r *redactor
	// copied is where the last member that is kept ends, -1 if there is none; pending where the first
	// member begins if it is dropped and none is kept yet, otherwise -1; last where the last member
	// ends.
	copied, pending, last int
}

// member is called for each member. Its edits are those from mark on.
func (d *dropper) member(start, end, mark int, drop bool) {
	switch {
	case drop && d.copied >= 0:
		d.r.edits = d.r.edits[:mark]
		d.r.replace(d.copied, end, "")
	case drop && d.pending < 0:
		d.pending = start
	case !drop && d.pending >= 0:
		d.r.replace(d.pending, start, "")
		d.pending = -1
	}
	if d.last = end; !drop || d.copied >= 0 {
		d.copied = end
	}
}

// end is called at the end of the object.
func (d *dropper) end() {
	if d.pending >= 0 {
		d.r.replace(d.pending, d.last, "")
	}
}

// unset removes the values of variables in a map: a string becomes empty, a number null. Other
// values have been redacted before.
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

// isSchemaType reports whether a member is the type in a JSON schema that describes a field. Then
// what looks like an environment is not one.
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

// concealItems conceals the content of Secrets in a list.
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

// members calls visit for each member of an object that has been scanned before.
func (r *redactor) members(i int, visit func(key []byte, value span)) {
	i = skipSpace(r.b, i+1)
	for more := r.b[i] != '}'; more; {
		key, value := memberAt(r.b, i)
		end := skipValue(r.b, value, maxRedactDepth)
		visit(key, span{value, end})
		i, more = nextMember(r.b, end, '}')
	}
}

// concealOne replaces a value by its length. encoded means that it is in base64.
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

// hasCopy reports whether an annotation of this name contains a copy of its object, or the command
// that created it.
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

// apply returns the text with all edits. Edits nested in others are ignored.
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
