package form

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Upstream indents with json.MarshalIndent, which is json.Indent of the compact
// bytes, and writes no newline at the end. As what an item looks like depends on
// nothing but its depth, items are indented one by one.
const (
	prettyIndent     = "  "
	prettyItemPrefix = prettyIndent + prettyIndent // items stand two levels deep
)

// writePretty writes what compact writes, indented.
func writePretty(w *chunks, prefix string, compact func(*chunks)) {
	var c chunks
	compact(&c)
	w.append(2*len(c.buf), func(b []byte) []byte { return appendIndented(b, prefix, c.buf) })
}

// appendIndented appends compact, which must be JSON without a newline at the
// end, indented.
func appendIndented(dst []byte, prefix string, compact []byte) []byte {
	buf := bytes.NewBuffer(dst)
	if err := json.Indent(buf, compact, prefix, prettyIndent); err != nil {
		// Objects are scanned when they arrive and the rest is made here, so
		// this cannot be; better that the client sees compact JSON than none.
		return append(dst, compact...)
	}
	return buf.Bytes()
}

// prettyFrame indents a frame around n items.
func prettyFrame(head, tail []byte, n int) (prettyHead, prettyTail []byte) {
	whole := make([]byte, 0, len(head)+len(tail)+len("null"))
	whole = append(whole, head...)
	if n > 0 {
		whole = append(whole, "null"...) // stands for the items
	}
	whole = append(whole, bytes.TrimSuffix(tail, []byte("\n"))...)
	indented := appendIndented(nil, "", whole)
	if n == 0 {
		return indented, nil
	}
	// No other array or value of a frame reads like this: line breaks inside
	// strings are escaped.
	placeholder := fmt.Sprintf("[\n%snull\n%s]", prettyItemPrefix, prettyIndent)
	at := bytes.LastIndex(indented, []byte(placeholder))
	start := at + len("[\n"+prettyItemPrefix)
	return indented[:start:start], indented[start+len("null"):]
}
