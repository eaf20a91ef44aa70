package query

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kubeweir/kubeweir/encoding/json"
)

// Kind is what a Value is.
type Kind uint8

// The kinds of values, in the order in which they are sorted.
const (
	// None is where there is nothing that compares: no value, null, a list, an object.
	None Kind = iota
	Bool
	Number
	// Age is the time since a moment: the older, the greater.
	Age
	String
)

// Value is what a path leads to in an object.
type Value struct {
	Kind Kind
	// number is that of a Number, as near as a float64 comes; of an Age, the seconds from
	// the moment to 1970.
	number float64
	// Text is the text of a String, the JSON of a Bool or a Number, the moment of an Age.
	Text string
}

// maxString is how many bytes of a string count, as JSON has them between its quotes, and
// maxNumber how many of a number are kept. What else a value has may be as large as its
// object, and there are values of many objects at a time.
const (
	maxString = 4 << 10
	maxNumber = 64
)

// shortened is the JSON of what counts of a string.
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

// ValueOf is the value of a JSON token, None for nil.
func ValueOf(token []byte) Value {
	if len(token) == 0 {
		return Value{}
	}
	switch token[0] {
	case '"':
		text, _ := json.Text(shortened(token))
		return StringOf(text)
	case 't', 'f':
		return Value{Kind: Bool, Text: string(token)}
	case 'n', '{', '[':
		return Value{}
	}
	text := string(token)
	number, _ := strconv.ParseFloat(text, 64) // what is too large is infinite
	if len(text) > maxNumber {
		text = strconv.FormatFloat(number, 'g', -1, 64)
	}
	return Value{Kind: Number, number: number, Text: text}
}

// AgeToken stands for a cell that says how long ago a moment was (seconds since 1970); no
// JSON begins so.
func AgeToken(seconds int64) []byte { return strconv.AppendInt([]byte{'@'}, seconds, 10) }

// ValueOfCell is the value of a Table's cell: a text that begins with a number alone
// ("3 (5m ago)") is that number, and an AgeToken an Age.
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

// StringOf is the value of a string.
func StringOf(text string) Value { return Value{Kind: String, Text: text} }

// Compare orders values: false before true, numbers, ages, then strings by their bytes.
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
	// Integers that a float64 cannot tell apart.
	x, errX := strconv.ParseInt(a.Text, 10, 64)
	y, errY := strconv.ParseInt(b.Text, 10, 64)
	if errX == nil && errY == nil {
		return cmp.Compare(x, y)
	}
	return 0
}

// quantity is the number that a Number is, or a String as a quantity of Kubernetes; ok is
// false for what is neither.
func (v Value) quantity() (n float64, ok bool) {
	switch v.Kind {
	case Number:
		return v.number, true
	case String:
		return parseQuantity(v.Text)
	}
	return 0, false
}

// AsQuantity is v as the number that it is, None if it is none. An Age stays one.
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

// parseQuantity reads a quantity (resource.Quantity: 500m, 1.5Gi, 1e3) as near as a float64
// comes. It costs nothing but its length, whatever the exponent.
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
	n, err := strconv.ParseFloat(text[:end], 64)
	if err != nil {
		return 0, false
	}
	switch suffix {
	case "":
	case "n":
		n /= 1e9
	case "u":
		n /= 1e6
	case "m":
		n /= 1e3
	case "k":
		n *= 1e3
	case "M":
		n *= 1e6
	case "G":
		n *= 1e9
	case "T":
		n *= 1e12
	case "P":
		n *= 1e15
	case "E":
		n *= 1e18
	case "Ki":
		n *= 1 << 10
	case "Mi":
		n *= 1 << 20
	case "Gi":
		n *= 1 << 30
	case "Ti":
		n *= 1 << 40
	case "Pi":
		n *= 1 << 50
	case "Ei":
		n *= 1 << 60
	default:
		return 0, false
	}
	return n, true
}

// parseAge reads a time that has passed as kubectl writes it (3d12h, 90s), or a number of
// seconds.
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
			switch text[0] {
			case 's':
			case 'm':
				unit = 60
			case 'h':
				unit = 60 * 60
			case 'd':
				unit = 24 * 60 * 60
			case 'y':
				unit = 365 * 24 * 60 * 60
			default:
				return 0, false
			}
			text = text[1:]
		}
		seconds += n * unit
	}
	return seconds, true
}
