package form

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/kubeweir/kubeweir/cache/form/chunks"
	"github.com/kubeweir/kubeweir/object"
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
