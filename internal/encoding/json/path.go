package json

import "bytes"

// StepKind is the kind of a Step.
type StepKind uint8

// The kinds of steps.
const (
	// Member selects a member of an object by its name.
	Member StepKind = iota
	// Element selects an element of an array by its position.
	Element
	// Matching selects the first element of an array that is an object whose member Name is the
	// string Value.
	Matching
	// Every selects every element of an array. Only a Projection supports it.
	Every
)

// Step is one step of a path into a value.
type Step struct {
	Kind  StepKind
	Name  string // of Member and Matching
	Value string // of Matching
	Index int    // of Element
}

// Lookup returns the value at a path in b, which must be well-formed; nil if there is none. The
// first of repeated members counts, but no API server writes those.
func Lookup(b []byte, path []Step) []byte {
	i := skipSpace(b, 0)
	for n := range path {
		if i = enter(b, i, &path[n]); i < 0 {
			return nil
		}
	}
	end := skipValue(b, i, maxDepth)
	if end < 0 {
		return nil
	}
	return b[i:end]
}

// enter returns where the value selected by a step from the value at b[i] begins, -1 if there is
// none.
func enter(b []byte, i int, s *Step) int {
	switch {
	case i >= len(b):
		return -1
	case s.Kind == Member && b[i] == '{':
		return findMember(b, i, s.Name)
	case s.Kind != Member && b[i] == '[':
		return findElement(b, i, s)
	}
	return -1
}

// findMember is enter for a member of the object at b[i].
func findMember(b []byte, i int, name string) int {
	if i = skipSpace(b, i+1); i >= len(b) || b[i] != '"' {
		return -1
	}
	for {
		key, value := memberAt(b, i)
		if value < 0 {
			return -1
		}
		if string(key) == name {
			return value
		}
		var more bool
		if i = skipValue(b, value, maxDepth); i < 0 {
			return -1
		}
		if i, more = nextMember(b, i, '}'); !more {
			return -1
		}
	}
}

// memberAt reads the key at b[i]. value is where its value begins, negative if there is none.
func memberAt(b []byte, i int) (key []byte, value int) {
	if i >= len(b) || b[i] != '"' {
		return nil, -1
	}
	end, escaped := skipString(b, i)
	if end < 0 {
		return nil, -1
	}
	if key = b[i+1 : end-1]; escaped {
		key = unescape(key)
	}
	return key, skipColon(b, end)
}

// findElement is enter for an element of the array at b[i].
func findElement(b []byte, i int, s *Step) int {
	if i = skipSpace(b, i+1); i >= len(b) || b[i] == ']' {
		return -1
	}
	for n := 0; ; n++ {
		if s.Kind == Element && n == s.Index || s.Kind == Matching && hasText(b, i, s.Name, s.Value) {
			return i
		}
		var more bool
		if i = skipValue(b, i, maxDepth); i < 0 {
			return -1
		}
		if i, more = nextMember(b, i, ']'); !more {
			return -1
		}
	}
}

// hasText reports whether the value at b[i] is an object whose member name is the string text.
func hasText(b []byte, i int, name, text string) bool {
	if i >= len(b) || b[i] != '{' {
		return false
	}
	value := findMember(b, i, name)
	if value < 0 || value >= len(b) || b[value] != '"' {
		return false
	}
	end, _ := skipString(b, value)
	if end < 0 {
		return false
	}
	found, _ := Text(b[value:end])
	return found == text
}

// Text returns the text of a string returned by Lookup. ok is false for other values.
func Text(token []byte) (text string, ok bool) {
	if len(token) < 2 || token[0] != '"' {
		return "", false
	}
	inner := token[1 : len(token)-1]
	if bytes.IndexByte(inner, '\\') >= 0 {
		inner = unescape(inner)
	}
	return string(inner), true
}

// Projection selects the parts of a value to keep: all of it, some members of an object, or parts of
// every element of an array. The zero value keeps nothing. It is built with Add and safe for
// concurrent use afterwards.
type Projection struct {
	all     bool
	members map[string]*Projection
	every   *Projection
}

// Add also keeps the value at path, which consists of Member and Every steps.
func (p *Projection) Add(path []Step) {
	for _, s := range path {
		next := p.every
		if s.Kind == Member {
			next = p.members[s.Name]
		}
		if next == nil {
			next = new(Projection)
			p.set(s, next)
		}
		p = next
	}
	p.all = true
}

func (p *Projection) set(s Step, next *Projection) {
	if s.Kind != Member {
		p.every = next
		return
	}
	if p.members == nil {
		p.members = make(map[string]*Projection)
	}
	p.members[s.Name] = next
}

// Append appends the kept parts of b, a well-formed object.
func (p *Projection) Append(dst, b []byte) []byte {
	i := skipSpace(b, 0)
	if !p.fits(b, i) {
		return append(dst, "{}"...)
	}
	dst, _ = p.append(dst, b, i)
	return dst
}

// fits reports whether the value at b[i] can have parts to keep.
func (p *Projection) fits(b []byte, i int) bool {
	return p.all || i < len(b) && (b[i] == '{' && p.members != nil || b[i] == '[' && p.every != nil)
}

// append appends the kept parts of the value at b[i], for which fits is true, and returns where it
// ends, a negative number if it is malformed.
func (p *Projection) append(dst, b []byte, i int) (out []byte, end int) {
	if p.all {
		if end = skipValue(b, i, maxDepth); end < 0 {
			return append(dst, "null"...), end
		}
		return append(dst, b[i:end]...), end
	}
	opening, closing := b[i], b[i]+2 // ASCII codes of both kinds of brackets differ by 2
	dst = append(dst, opening)
	start := len(dst)
	more := true
	if i = skipSpace(b, i+1); i < len(b) && b[i] == closing {
		i, more = i+1, false
	}
	for more {
		value, part := i, p.every
		if opening == '{' {
			var key []byte
			if key, value = memberAt(b, i); value < 0 {
				return append(dst, closing), value
			}
			part = p.members[string(key)]
		}
		if part == nil || !part.fits(b, value) {
			i = skipValue(b, value, maxDepth)
		} else {
			if len(dst) > start {
				dst = append(dst, ',')
			}
			dst = append(dst, b[i:value]...)
			dst, i = part.append(dst, b, value)
		}
		if i < 0 {
			break
		}
		i, more = nextMember(b, i, closing)
	}
	return append(dst, closing), i
}
