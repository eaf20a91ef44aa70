package json

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/internal/encoding"
)

// ReadList implements encoding.Codec. The members of the list may have any order: kube-apiserver's
// lists of custom resources are sorted, and end with the metadata.
func (Codec) ReadList(r io.Reader, opts encoding.ReadOptions, visit func(item []byte) error) (encoding.ListMeta, error) {
	l := list{stream: newStream(r, encoding.ListBuffer, opts.Limit), visit: visit}
	if opts.Kind != "" {
		l.head = itemHead(opts.APIVersion, opts.Kind)
	}
	if err := l.read(); err != nil {
		return encoding.ListMeta{}, err
	}
	return l.meta, nil
}

type list struct {
	stream
	// head is inserted before the members of items that do not begin with their kind or apiVersion,
	// as in typed lists, so that they equal what a watch sends.
	head  []byte
	visit func(item []byte) error
	meta  encoding.ListMeta
	items bool // whether the list has a member items
}

func (l *list) read() error {
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
		// Treating it as an empty list would delete everything that is cached.
		return fmt.Errorf("%q of %q is not a list: it has no items", l.meta.Kind, l.meta.APIVersion)
	}
	return l.atEnd()
}

func (l *list) member(key string) error {
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

func (l *list) readMeta(value []byte) error {
	var meta metav1.ListMeta
	if err := json.Unmarshal(value, &meta); err != nil {
		return err
	}
	l.meta.Take(&meta)
	return nil
}

func (l *list) readItems() error {
	if l.items {
		return errors.New("malformed list: it has items twice")
	}
	l.items = true
	if c, err := l.peek(); err != nil {
		return encoding.Inside(err)
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
			return encoding.Inside(err)
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

// own copies an item into an allocation of its own and inserts the head if it is missing.
func (l *list) own(item []byte) []byte {
	members := item[skipSpace(item, 1):]
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
