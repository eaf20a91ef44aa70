package json

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"

	"github.com/kubeweir/kubeweir/internal/encoding"
)

// template implements encoding.BookmarkTemplate.
type template struct {
	// head and tail surround the metadata in the object's bytes.
	head, tail []byte
	// plain and marked surround the version in the metadata: without and with the annotation that
	// ends the initial events.
	plain, marked around
}

// around is what precedes and follows the version.
type around struct{ before, after []byte }

// NewBookmark implements encoding.Codec.
func (Codec) NewBookmark(apiVersion, kind string, sorted bool) encoding.BookmarkTemplate {
	first, second := `"kind":`+quote(kind), `"apiVersion":`+quote(apiVersion)
	if sorted {
		first, second = second, first
	}
	t := &template{head: []byte("{" + first + "," + second + `,"metadata":`), tail: []byte("}")}
	t.render([]pair{{key: "resourceVersion"}}, false, sorted)
	return t
}

// AppendObject implements encoding.BookmarkTemplate.
func (t *template) AppendObject(dst []byte, rv uint64, end bool) []byte {
	dst = append(dst, t.head...)
	dst = t.AppendMetadata(dst, rv, end)
	return append(dst, t.tail...)
}

// AppendMetadata implements encoding.BookmarkTemplate.
func (t *template) AppendMetadata(dst []byte, rv uint64, end bool) []byte {
	form := &t.plain
	if end {
		form = &t.marked
	}
	dst = append(dst, form.before...)
	dst = strconv.AppendUint(dst, rv, 10)
	return append(dst, form.after...)
}

// ParseBookmark implements encoding.Codec.
func (Codec) ParseBookmark(object []byte) (encoding.Bookmark, error) {
	p, err := parseBookmark(object)
	if err != nil {
		return encoding.Bookmark{}, fmt.Errorf("bookmark: %w", err)
	}
	return p.last, nil
}

// LearnBookmark implements encoding.Codec.
func (Codec) LearnBookmark(object []byte) (encoding.BookmarkTemplate, error) {
	p, err := parseBookmark(object)
	if err == nil && p.named {
		err = encoding.ErrNamed
	}
	if err != nil {
		return nil, fmt.Errorf("bookmark: %w", err)
	}
	t := &template{head: p.head, tail: p.tail}
	t.render(p.members, p.last.InitialEventsEnd, bytes.HasPrefix(object, []byte(`{"apiVersion":`)))
	return t, nil
}

// parsed holds the parts of a bookmark.
type parsed struct {
	head, tail []byte // around the metadata
	members    []pair // of the metadata
	named      bool
	last       encoding.Bookmark
}

type pair struct {
	key   string
	value []byte
}

func parseBookmark(object []byte) (*parsed, error) {
	if end, err := skip(object); err != nil || end != len(object) {
		return nil, errors.Join(errNotObject, err)
	}
	start, stop := member(object, "metadata")
	if start < 0 || object[start] != '{' {
		return nil, encoding.ErrNoMetadata
	}
	p := &parsed{head: object[:start], tail: object[stop:]}
	metadata := object[start:stop]
	eachMember(metadata, func(key []byte, s, e int) {
		p.members = append(p.members, pair{string(key), metadata[s:e]})
	})
	var version []byte
	for _, m := range p.members {
		switch m.key {
		case "name":
			p.named = true
		case "resourceVersion":
			version = m.value
		case "annotations":
			p.last.InitialEventsEnd = marksEnd(m.value)
		}
	}
	if len(version) < 2 || version[0] != '"' {
		return nil, encoding.ErrNoVersion
	}
	var err error
	p.last.ResourceVersion, err = encoding.ParseVersion(version[1 : len(version)-1])
	return p, err
}

// marksEnd reports whether annotations mark the end of the initial events.
func marksEnd(annotations []byte) bool {
	start, end := member(annotations, encoding.InitialEventsEnd)
	return start >= 0 && string(annotations[start:end]) == `"true"`
}

// initialEventsEnd is the annotations value of the bookmark after the initial events.
const initialEventsEnd = `{"` + encoding.InitialEventsEnd + `":"true"}`

// render prepares the metadata with and without the annotation. members have it if isMarked is set.
func (t *template) render(members []pair, isMarked, sorted bool) {
	plain, marked := slices.DeleteFunc(slices.Clone(members), func(m pair) bool { return m.key == "annotations" }), members
	if !isMarked {
		marked = append(slices.Clip(plain), pair{"annotations", []byte(initialEventsEnd)})
		if sorted {
			sort.SliceStable(marked, func(i, j int) bool { return marked[i].key < marked[j].key })
		}
	}
	t.plain, t.marked = aroundVersion(plain), aroundVersion(marked)
}

func aroundVersion(members []pair) (a around) {
	out := &a.before
	*out = append(*out, '{')
	for n, m := range members {
		if n > 0 {
			*out = append(*out, ',')
		}
		*out = append(append(*out, quote(m.key)...), ':')
		if m.key == "resourceVersion" {
			*out = append(*out, '"')
			out = &a.after
			*out = append(*out, '"')
			continue
		}
		*out = append(*out, m.value...)
	}
	*out = append(*out, '}')
	return a
}
