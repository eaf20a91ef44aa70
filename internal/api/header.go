package api

import "strings"

// HeaderField is one header line; Name is in canonical form (Accept-Encoding).
type HeaderField struct{ Name, Value string }

// Header is an ordered list of header lines. It is small, so lookups scan it.
// A Header is not safe for concurrent modification.
type Header []HeaderField

// Get returns the first value of name (compared without case), or "".
func (h Header) Get(name string) string {
	for i := range h {
		if strings.EqualFold(h[i].Name, name) {
			return h[i].Value
		}
	}
	return ""
}

// Has reports whether a line called name is present, even with an empty value.
func (h Header) Has(name string) bool {
	for i := range h {
		if strings.EqualFold(h[i].Name, name) {
			return true
		}
	}
	return false
}

// Values returns all values of name in order, nil when there is none.
func (h Header) Values(name string) []string {
	var values []string
	for i := range h {
		if strings.EqualFold(h[i].Name, name) {
			values = append(values, h[i].Value)
		}
	}
	return values
}

// HasPrefix reports whether any line's name starts with prefix (without case).
func (h Header) HasPrefix(prefix string) bool {
	for i := range h {
		if hasPrefixFold(h[i].Name, prefix) {
			return true
		}
	}
	return false
}

// Add appends one line.
func (h *Header) Add(name, value string) { *h = append(*h, HeaderField{name, value}) }

// Set replaces all lines called name by one.
func (h *Header) Set(name, value string) {
	h.Del(name)
	h.Add(name, value)
}

// Del removes all lines called name (without case).
func (h *Header) Del(name string) {
	filtered := (*h)[:0]
	for _, f := range *h {
		if !strings.EqualFold(f.Name, name) {
			filtered = append(filtered, f)
		}
	}
	*h = filtered
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}
