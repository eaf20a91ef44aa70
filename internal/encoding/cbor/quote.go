package cbor

import (
	"unicode/utf8"
)

// appendQuoted appends a string as JSON. Invalid UTF-8 becomes U+FFFD, as in encoding/json.
// Characters that YAML does not allow are escaped, because an apply patch in CBOR is forwarded as
// YAML.
func appendQuoted(dst, text []byte) []byte {
	dst = append(dst, '"')
	for len(text) > 0 {
		n := 0
		for n < len(text) && isPlain(text[n]) && text[n] != del {
			n++
		}
		dst, text = append(dst, text[:n]...), text[n:]
		if len(text) > 0 {
			r, size := utf8.DecodeRune(text)
			dst, text = appendQuotedRune(dst, r), text[size:]
		}
	}
	return append(dst, '"')
}

const del = 0x7f

func appendQuotedRune(dst []byte, r rune) []byte {
	switch r {
	case '"', '\\':
		return append(dst, '\\', byte(r))
	case '\n':
		return append(dst, `\n`...)
	case '\r':
		return append(dst, `\r`...)
	case '\t':
		return append(dst, `\t`...)
	}
	const (
		lastControl   = 0x9f
		lineSeparator = 0x2028
		paragraph     = 0x2029
		byteOrderMark = 0xfeff
		notCharacter  = 0xfffe // and 0xffff
	)
	switch {
	case r < ' ', r >= del && r <= lastControl, r == lineSeparator, r == paragraph, r == byteOrderMark, r == notCharacter, r == notCharacter+1:
		const digits = "0123456789abcdef"
		return append(dst, '\\', 'u', digits[r>>12&0xf], digits[r>>8&0xf], digits[r>>4&0xf], digits[r&0xf])
	}
	return utf8.AppendRune(dst, r)
}
