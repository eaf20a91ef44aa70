package form

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/kubeweir/kubeweir/cache/form/chunks"
	"github.com/kubeweir/kubeweir/cache/form/derived"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
)

// kube-apiserver indents with json.MarshalIndent, which is json.Indent of the compact bytes, and
// writes no final newline. The indentation of an item depends only on its depth, so items are
// indented one by one.
const (
	prettyIndent     = "  "
	prettyItemPrefix = prettyIndent + prettyIndent // items are two levels deep
)

// pretty indents the items of another form.
type pretty struct {
	Form
	prefix string
}

// indented returns f with indented items.
func indented(f Form) *pretty {
	if f.common().alone {
		return &pretty{Form: f}
	}
	return &pretty{Form: f, prefix: prettyItemPrefix}
}

func (f *pretty) separator() string { return f.Form.separator() + "\n" + f.prefix }

func (f *pretty) itemSize(i int, o *object.Object) (n int, exact bool) {
	n, _ = f.Form.itemSize(i, o)
	return n, false
}

func (f *pretty) item(w *chunks.Writer, i int, o *object.Object) {
	var c chunks.Writer
	f.Form.item(&c, i, o)
	w.Append(2*len(c.Buf), func(b []byte) []byte { return appendIndented(b, f.prefix, c.Buf) })
}

// appendIndented appends compact, indented. compact must be JSON without a final newline.
func appendIndented(dst []byte, prefix string, compact []byte) []byte {
	buf := bytes.NewBuffer(dst)
	if err := json.Indent(buf, compact, prefix, prettyIndent); err != nil {
		// Unreachable: objects were scanned on arrival, and all other JSON was made here. Compact
		// JSON is better than none.
		return append(dst, compact...)
	}
	return buf.Bytes()
}

// prettyFrame indents the head and tail around n items.
func prettyFrame(head, tail []byte, n int) (prettyHead, prettyTail []byte) {
	whole := make([]byte, 0, len(head)+len(tail)+len("null"))
	whole = append(whole, head...)
	if n > 0 {
		whole = append(whole, "null"...) // placeholder for the items
	}
	whole = append(whole, bytes.TrimSuffix(tail, []byte("\n"))...)
	indented := appendIndented(nil, "", whole)
	if n == 0 {
		return indented, nil
	}
	// No other array or value of a frame matches: strings contain no raw line breaks.
	placeholder := fmt.Sprintf("[\n%snull\n%s]", prettyItemPrefix, prettyIndent)
	at := bytes.LastIndex(indented, []byte(placeholder))
	start := at + len("[\n"+prettyItemPrefix)
	return indented[:start:start], indented[start+len("null"):]
}

// redacted renders redacted objects (object.Redacted) in another form. Objects are redacted once
// per version. The inner form only ever sees the redacted object, and its slots say so, so values
// derived for one view are never found by the other.
//
// Redacted objects are JSON, and there is no protobuf form of them: a protobuf object can have
// fields that this code does not know and cannot redact.
type redacted struct {
	Form
	// prepared is true if event gets objects that prepare has redacted.
	prepared bool
}

// redact is a cached object.Redacted.
func (b *base) redact(o *object.Object) (*object.Object, error) {
	s := b.slot(derivedRedacted, o)
	return derived.Once(b.r.derived, &s, o.ID, func() (*object.Object, int, error) {
		value, err := o.Redacted(b.res.Kind == "Secret" && b.res.APIVersion == "v1")
		if err != nil {
			return nil, 0, fmt.Errorf("redacting: %w", err)
		}
		if value == o {
			return value, 0, nil
		}
		return value, cap(value.Raw), nil
	})
}

func (f *redacted) prepare(p place, objs Objects) (Objects, error) {
	common := f.common()
	of, err := collect(common.r, p, p.slot(derivedRedactedAll), objs, common.redact)
	if err != nil {
		return nil, err
	}
	f.prepared = true
	return f.Form.prepare(p, sliceOfObjects(of))
}

// sharing implements Form. The redacted objects do not belong to the collection, so frames that
// refer to them are kept.
func (f *redacted) sharing() sharing {
	if s := f.Form.sharing(); s != byReference {
		return s
	}
	return cached
}

func (f *redacted) event(fr *Frames, t api.EventType, i int, o *object.Object, now time.Time) error {
	if !f.prepared {
		var err error
		if o, err = f.common().redact(o); err != nil {
			return err
		}
	}
	return f.Form.event(fr, t, i, o, now)
}
