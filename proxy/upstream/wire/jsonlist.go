package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// listBuffer is the size of what a list is read through. It grows for objects
// that do not fit.
const listBuffer = 128 << 10

// ReadJSONList reads a list and calls visit for each item, in order; visit may
// keep what it gets. Items that do not begin with their kind or apiVersion, as
// those of typed lists, get head first, so that they equal what a watch sends;
// see ItemHead. No item may have more than limit bytes. An error of visit is
// returned as it is, and ends the reading.
//
// The members of the list come in any order: what kube-apiserver sends of custom
// resources is sorted, and ends with the metadata.
func ReadJSONList(r io.Reader, head []byte, limit int, visit func(item []byte) error) (ListMeta, error) {
	l := jsonList{scanner: newScanner(r, listBuffer, limit), head: head, visit: visit}
	if err := l.read(); err != nil {
		return ListMeta{}, err
	}
	return l.meta, nil
}

// ItemHead is what stands before the members of an object in a watch, and is
// missing in the items of typed lists: {"kind":"K","apiVersion":"V",
func ItemHead(apiVersion, kind string) []byte {
	return fmt.Appendf(nil, `{"kind":%s,"apiVersion":%s,`, quote(kind), quote(apiVersion))
}

func quote(s string) []byte {
	// Marshalling a string cannot fail.
	b, _ := json.Marshal(s)
	return b
}

type jsonList struct {
	scanner
	head  []byte
	visit func(item []byte) error
	meta  ListMeta
	items bool // the list has a member items
}

func (l *jsonList) read() error {
	if err := l.expect('{'); err != nil {
		return err
	}
	for first := true; ; first = false {
		more, err := l.separated(first, '}')
		if err != nil {
			return err
		}
		if !more {
			break
		}
		key, err := l.key()
		if err != nil {
			return err
		}
		if err := l.member(key); err != nil {
			return err
		}
	}
	if !l.items {
		// Taking it for an empty list would delete everything that is cached.
		return fmt.Errorf("%q of %q is not a list: it has no items", l.meta.Kind, l.meta.APIVersion)
	}
	return l.atEnd()
}

func (l *jsonList) member(key string) error {
	if key == "items" {
		return l.readItems()
	}
	value, err := l.value()
	if err != nil {
		return fmt.Errorf("%s of the list: %w", key, err)
	}
	switch key {
	case "kind":
		err = json.Unmarshal(value, &l.meta.Kind)
	case "apiVersion":
		err = json.Unmarshal(value, &l.meta.APIVersion)
	case "metadata":
		err = l.readMeta(value)
	}
	if err != nil {
		return fmt.Errorf("%s of the list: %w", key, err)
	}
	return nil
}

func (l *jsonList) readMeta(value []byte) error {
	var meta metav1.ListMeta
	if err := json.Unmarshal(value, &meta); err != nil {
		return err
	}
	l.meta.take(&meta)
	return nil
}

func (l *jsonList) readItems() error {
	if l.items {
		return errors.New("malformed list: it has items twice")
	}
	l.items = true
	if c, err := l.peek(); err != nil {
		return inside(err)
	} else if c == 'n' {
		// Go encodes a list without items as null or [].
		value, err := l.literal()
		if err == nil && string(value) != "null" {
			err = fmt.Errorf("malformed list: items are %q", value)
		}
		return err
	}
	if err := l.expect('['); err != nil {
		return err
	}
	for first := true; ; first = false {
		more, err := l.separated(first, ']')
		if err != nil || !more {
			return err
		}
		if c, err := l.peek(); err != nil {
			return inside(err)
		} else if c != '{' {
			return syntax(c, "want an item that is an object")
		}
		item, err := l.container()
		if err != nil {
			return fmt.Errorf("item of the list: %w", err)
		}
		if err := l.visit(l.own(item)); err != nil {
			return err
		}
	}
}

// own copies an item into an allocation of its own and puts the head before it
// where it lacks one.
func (l *jsonList) own(item []byte) []byte {
	members := bytes.TrimLeft(item[1:], " \t\r\n")
	if bytes.HasPrefix(members, []byte(`"kind"`)) || bytes.HasPrefix(members, []byte(`"apiVersion"`)) {
		return bytes.Clone(item)
	}
	head := l.head
	if len(members) == 1 && len(head) > 0 {
		head = head[:len(head)-1] // {}: no comma after the head
	}
	if len(head) == 0 {
		return bytes.Clone(item)
	}
	owned := make([]byte, len(head)+len(item)-1)
	copy(owned[copy(owned, head):], item[1:])
	return owned
}
