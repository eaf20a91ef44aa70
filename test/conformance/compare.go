package conformance

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// comparedHeaders are the headers that clients act on. Of Audit-Id, which servers generate, only
// the presence is compared. ETag is only compared if the oracle sends one, because the gateway adds
// it to other responses.
var comparedHeaders = []string{
	"Allow", "Cache-Control", "Content-Encoding", "Content-Type", "Location", "Retry-After",
	"Sec-Websocket-Protocol", "Vary", "Warning", "Www-Authenticate", "X-Content-Type-Options",
}

// differences returns the differences of two responses to a case, one line each.
func differences(c Case, want, got response) []string {
	var out []string
	if len(want.pages) != len(got.pages) {
		return []string{fmt.Sprintf("pages: %d, want %d", len(got.pages), len(want.pages))}
	}
	for i := range want.pages {
		for _, d := range responseDifferences(c, want.pages[i], got.pages[i]) {
			if len(want.pages) > 1 {
				d = fmt.Sprintf("page %d: %s", i+1, d)
			}
			out = append(out, d)
		}
	}
	return append(out, frameDifferences(c, want, got)...)
}

func responseDifferences(c Case, want, got Response) []string {
	var out []string
	if want.Status != got.Status {
		out = append(out, fmt.Sprintf("status: %d, want %d", got.Status, want.Status))
	}
	out = append(out, headerDifferences(want.Header, got.Header)...)
	if c.IgnoreBody || bytes.Equal(want.Body, got.Body) {
		return out
	}
	if c.Version == AnyVersion {
		if (listVersion(want.Body) == "") != (listVersion(got.Body) == "") {
			out = append(out, fmt.Sprintf("list version: %q, want one like %q", listVersion(got.Body), listVersion(want.Body)))
		}
		out = append(out, olderThanItems(got.Body)...)
	}
	if d := diffBytes(masked(c, want.Body), masked(c, got.Body)); d != "" {
		out = append(out, "body: "+d)
	}
	return out
}

// olderThanItems reports whether the version of a list in JSON or CBOR is lower than that of an
// item.
func olderThanItems(body []byte) []string {
	type object struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	var list struct {
		object
		Items []object `json:"items"`
		Rows  []struct {
			Object object `json:"object"`
		} `json:"rows"`
	}
	if unmarshal(body, &list) != nil {
		return nil
	}
	for _, r := range list.Rows {
		list.Items = append(list.Items, r.Object)
	}
	whole, err := strconv.ParseUint(list.Metadata.ResourceVersion, 10, 64)
	if err != nil {
		return nil
	}
	for _, i := range list.Items {
		if v, err := strconv.ParseUint(i.Metadata.ResourceVersion, 10, 64); err == nil && v > whole {
			return []string{fmt.Sprintf("list version %d is older than an item's, %d", whole, v)}
		}
	}
	return nil
}

func headerDifferences(want, got http.Header) []string {
	var out []string
	names := comparedHeaders
	if want.Get("ETag") != "" {
		names = append(slices.Clone(names), "Etag")
	}
	for _, name := range names {
		if w, g := want.Values(name), got.Values(name); !slices.Equal(w, g) {
			out = append(out, fmt.Sprintf("header %s: %q, want %q", name, g, w))
		}
	}
	for _, name := range []string{"Audit-Id"} {
		if (want.Get(name) == "") != (got.Get(name) == "") {
			out = append(out, fmt.Sprintf("header %s: %q, want one like %q", name, got.Get(name), want.Get(name)))
		}
	}
	return out
}

func frameDifferences(c Case, want, got response) []string {
	var out []string
	for i := range max(len(want.frames), len(got.frames)) {
		switch {
		case i >= len(got.frames):
			out = append(out, fmt.Sprintf("event %d is missing: %.200q", i, want.frames[i].Bytes))
		case i >= len(want.frames):
			out = append(out, fmt.Sprintf("event %d is too many: %.200q", i, got.frames[i].Bytes))
		default:
			w, g := maskText(c, want.frames[i].compared()), maskText(c, got.frames[i].compared())
			if d := diffBytes(w, g); d != "" {
				out = append(out, fmt.Sprintf("event %d: %s", i, d))
			}
		}
	}
	if want.end != got.end {
		out = append(out, fmt.Sprintf("end of the watch: %q, want %q", got.end, want.end))
	}
	return out
}

func masked(c Case, body []byte) []byte {
	switch {
	case bytes.HasPrefix(body, protoMagic):
		return protoListMetadata(body, c.Version)
	case isCBOR(body):
		return maskText(c, cborListMetadata(body, c.Version))
	case bytes.HasPrefix(body, yamlStart):
		return maskText(c, yamlListMetadata(body, c.Version))
	}
	return maskText(c, listMetadata(body, c.Version))
}

func maskText(c Case, b []byte) []byte {
	for _, m := range c.Mask {
		b = m.ReplaceAll(b, []byte("MASKED"))
	}
	return b
}

// diffBytes shows the first difference of two bodies, or "" if they are equal.
func diffBytes(want, got []byte) string {
	if bytes.Equal(want, got) {
		return ""
	}
	at := 0
	for at < min(len(want), len(got)) && want[at] == got[at] {
		at++
	}
	excerpt := func(b []byte) []byte { return b[max(0, min(at-60, len(b))):min(len(b), at+120)] }
	return fmt.Sprintf("%d bytes, want %d; from byte %d:\n   got %q\n  want %q", len(got), len(want), at, excerpt(got), excerpt(want))
}

// surprises returns the facts stated by a case that the oracle's response does not confirm.
func surprises(c Case, a response) []string {
	var out []string
	first := a.pages[0]
	if c.Want != anyStatus && first.Status != c.want() {
		out = append(out, fmt.Sprintf("status %d, want %d: %.300q", first.Status, c.want(), first.Body))
	}
	if c.WantType != "" && first.Header.Get("Content-Type") != c.WantType {
		out = append(out, fmt.Sprintf("Content-Type %q, want %q", first.Header.Get("Content-Type"), c.WantType))
	}
	all := [][]byte{first.Body}
	var types []string
	for _, f := range a.frames {
		all = append(all, f.Bytes)
		types = append(types, f.Type)
	}
	if c.Watch && c.Count == 0 && !slices.Equal(types, c.Events) {
		out = append(out, fmt.Sprintf("events %v, want %v", types, c.Events))
	}
	text := bytes.Join(all, nil)
	for _, w := range c.WantText {
		if !bytes.Contains(text, []byte(w)) {
			out = append(out, fmt.Sprintf("the answer does not hold %q: %.300q", w, text))
		}
	}
	if c.Walk && len(a.pages) < 2 {
		out = append(out, "there is only one page")
	}
	return out
}

func lines(items []string) string { return strings.Join(items, "\n") }
