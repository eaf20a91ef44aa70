package query

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kubeweir/kubeweir/internal/encoding/json"
)

// Kind is the kind of a Value.
type Kind uint8

// The kinds of values, in sort order.
const (
	// None is a value that cannot be compared: missing, null, a list, or an object.
	None Kind = iota
	Bool
	Number
	// Age is the time since a moment. An older one is greater.
	Age
	String
)

// Value is the value at a path of an object.
type Value struct {
	Kind Kind
	// number is the nearest float64 of a Number or, for an Age, the seconds from the moment to
	// 1970.
	number float64
	// Text is the text of a String, the JSON of a Bool or a Number, or the moment of an Age.
	Text string
}

// maxString is how many bytes of a string are compared, as JSON has them between its quotes, and
// maxNumber how many of a number are kept. A value may be as large as its object, and the values of
// many objects are kept.
const (
	maxString = 4 << 10
	maxNumber = 64
)

// shortened returns the JSON of the part of a string that is compared.
func shortened(token []byte) []byte {
	if len(token) <= maxString+2 {
		return token
	}
	end := 1
	for next := 1; next <= maxString+1; {
		end = next
		switch c := token[next]; {
		case c == '\\' && token[next+1] == 'u':
			next += len(`\u0000`)
		case c == '\\':
			next += 2
		default:
			for next++; !utf8.RuneStart(token[next]); {
				next++
			}
		}
	}
	return append(slices.Clip(token[:end]), '"')
}

// ValueOf returns the value of a JSON token, None for nil.
func ValueOf(token []byte) Value {
	if len(token) == 0 {
		return Value{}
	}
	switch token[0] {
	case '"':
		text, _ := json.Text(shortened(token))
		return Value{Kind: String, Text: text}
	case 't', 'f':
		return Value{Kind: Bool, Text: string(token)}
	case 'n', '{', '[':
		return Value{}
	}
	text := string(token)
	number, _ := strconv.ParseFloat(text, 64) // a number that is too large is infinite
	if len(text) > maxNumber {
		text = strconv.FormatFloat(number, 'g', -1, 64)
	}
	return Value{Kind: Number, number: number, Text: text}
}

// AgeToken returns the token of a cell that shows how long ago a moment was (seconds since 1970).
// It is not valid JSON.
func AgeToken(seconds int64) []byte { return strconv.AppendInt([]byte{'@'}, seconds, 10) }

// ValueOfCell returns the value of a Table's cell. A text that begins with a number, such as "3 (5m
// ago)", is that number, and an AgeToken is an Age.
func ValueOfCell(token []byte) Value {
	if len(token) > 0 && token[0] == '@' {
		seconds, _ := strconv.ParseInt(string(token[1:]), 10, 64)
		return Value{Kind: Age, number: -float64(seconds), Text: time.Unix(seconds, 0).UTC().Format(time.RFC3339)}
	}
	v := ValueOf(token)
	first, _, _ := strings.Cut(v.Text, " ")
	if v.Kind == String && first != "" && len(first) < 16 && strings.Trim(first, "0123456789") == "" {
		return ValueOf([]byte(first))
	}
	return v
}

// Compare orders values: false, true, numbers, ages, then strings by their bytes.
func Compare(a, b Value) int {
	if a.Kind != b.Kind {
		return cmp.Compare(a.Kind, b.Kind)
	}
	if a.Kind != Number && a.Kind != Age {
		return strings.Compare(a.Text, b.Text)
	}
	if c := cmp.Compare(a.number, b.number); c != 0 {
		return c
	}
	// These are integers that a float64 cannot tell apart.
	x, errX := strconv.ParseInt(a.Text, 10, 64)
	y, errY := strconv.ParseInt(b.Text, 10, 64)
	if errX == nil && errY == nil {
		return cmp.Compare(x, y)
	}
	return 0
}

// quantity returns the number of a Number, or of a String that is a Kubernetes quantity. ok is
// false otherwise.
func (v Value) quantity() (n float64, ok bool) {
	switch v.Kind {
	case Number:
		return v.number, true
	case String:
		return parseQuantity(v.Text)
	}
	return 0, false
}

// AsQuantity returns v as a number, None if it is not one. An Age stays an Age.
func (v Value) AsQuantity() Value {
	if v.Kind == Age {
		return v
	}
	n, ok := v.quantity()
	if !ok {
		return Value{}
	}
	return Value{Kind: Number, number: n, Text: strconv.FormatFloat(n, 'g', -1, 64)}
}

// parseQuantity parses a quantity (resource.Quantity: 500m, 1.5Gi, 1e3) to the nearest float64. Its
// cost depends on the length of the text alone, whatever the exponent.
func parseQuantity(text string) (n float64, ok bool) {
	if len(text) == 0 || len(text) > 64 {
		return 0, false
	}
	end := 0
	for end < len(text) && ('0' <= text[end] && text[end] <= '9' || text[end] == '.' || end == 0 && (text[0] == '-' || text[0] == '+')) {
		end++
	}
	suffix := text[end:]
	if len(suffix) > 1 && (suffix[0] == 'e' || suffix[0] == 'E') && suffix[1] <= '9' {
		end, suffix = len(text), "" // an exponent
	}
	factor, binary := binarySuffixes[suffix]
	exponent, decimal := decimalSuffixes[suffix]
	if !binary && !decimal {
		return 0, false
	}
	n, err := strconv.ParseFloat(text[:end]+exponent, 64)
	if binary {
		n *= factor
	}
	return n, err == nil
}

// The suffixes of quantities.
var (
	decimalSuffixes = map[string]string{
		"": "", "n": "e-9", "u": "e-6", "m": "e-3", "k": "e3", "M": "e6", "G": "e9", "T": "e12", "P": "e15", "E": "e18",
	}
	binarySuffixes = map[string]float64{
		"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60,
	}
)

// secondsOf are the units of ages.
var secondsOf = map[byte]float64{'s': 1, 'm': 60, 'h': 60 * 60, 'd': 24 * 60 * 60, 'y': 365 * 24 * 60 * 60}

// parseAge parses an age as kubectl prints it (3d12h, 90s), or a number of seconds.
func parseAge(text string) (seconds float64, ok bool) {
	if text == "" || len(text) > maxNumber {
		return 0, false
	}
	for text != "" {
		end := 0
		for end < len(text) && '0' <= text[end] && text[end] <= '9' {
			end++
		}
		n, err := strconv.ParseFloat(text[:end], 64)
		if err != nil {
			return 0, false
		}
		unit := 1.0
		if text = text[end:]; text != "" {
			if unit = secondsOf[text[0]]; unit == 0 {
				return 0, false
			}
			text = text[1:]
		}
		seconds += n * unit
	}
	return seconds, true
}
