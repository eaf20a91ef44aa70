package cbor

import (
	"encoding/binary"
	"math"
)

// SelfDescribed is tag 55799, with which every response and every watch event begins,
// and the object in an event once more. An item of a list has none.
const SelfDescribed = "\xd9\xd9\xf7"

// The major types, as they stand in the first byte of a data item.
const (
	majorUint   byte = 0 << 5
	majorNegInt byte = 1 << 5
	majorBytes  byte = 2 << 5
	majorText   byte = 3 << 5
	majorArray  byte = 4 << 5
	majorMap    byte = 5 << 5
	majorTag    byte = 6 << 5
	majorSimple byte = 7 << 5

	majorMask byte = 7 << 5
)

// What the lower bits of the first byte say, when they are no argument themselves.
const (
	infoMask = 31

	argument1  = 24 // one byte of argument follows, and so on
	argument2  = 25
	argument4  = 26
	argument8  = 27
	indefinite = 31

	simpleFalse = 20
	simpleTrue  = 21
	simpleNull  = 22

	breakCode = majorSimple | indefinite
)

// Tags that decide what their content means.
const (
	tagTimeText       = 0
	tagTimeNumber     = 1
	tagBignum         = 2
	tagNegativeBignum = 3
	tagBase64URL      = 21
	tagBase64         = 22
	tagBase16         = 23
)

// appendHead appends the first byte of an item and its argument, in as few bytes as hold
// it.
func appendHead(dst []byte, major byte, n uint64) []byte {
	switch {
	case n < argument1:
		return append(dst, major|byte(n))
	case n <= math.MaxUint8:
		return append(dst, major|argument1, byte(n))
	case n <= math.MaxUint16:
		return append(dst, major|argument2, byte(n>>8), byte(n))
	case n <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(dst, major|argument4), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(dst, major|argument8), n)
}

func headSize(n int) int {
	switch {
	case n < argument1:
		return 1
	case n <= math.MaxUint8:
		return 2
	case n <= math.MaxUint16:
		return 3
	case n <= math.MaxUint32:
		return 5
	}
	return 9
}

// setHead writes the head of an item whose content begins at dst[start+reserved:] and
// ends with dst, and moves the content if the head is not of the reserved size.
func setHead(dst []byte, start, reserved int, major byte, n int) []byte {
	size := headSize(n)
	switch {
	case size > reserved:
		var room [9]byte
		dst = append(dst, room[:size-reserved]...)
		copy(dst[start+size:], dst[start+reserved:])
	case size < reserved:
		end := start + size + copy(dst[start+size:], dst[start+reserved:])
		dst = dst[:end]
	}
	appendHead(dst[:start], major, uint64(n))
	return dst
}

// appendString appends a string as apimachinery writes strings.
func appendString(dst []byte, s string) []byte {
	return append(appendHead(dst, majorBytes, uint64(len(s))), s...)
}

func appendInt(dst []byte, i int64) []byte {
	if i < 0 {
		return appendHead(dst, majorNegInt, uint64(^i))
	}
	return appendHead(dst, majorUint, uint64(i))
}

// appendFloat appends f, which is a number, in the fewest bits that hold its value.
func appendFloat(dst []byte, f float64) []byte {
	single := float32(f)
	if float64(single) != f {
		return binary.BigEndian.AppendUint64(append(dst, majorSimple|argument8), math.Float64bits(f))
	}
	if half, exact := float16(single); exact {
		return append(dst, majorSimple|argument2, byte(half>>8), byte(half))
	}
	return binary.BigEndian.AppendUint32(append(dst, majorSimple|argument4), math.Float32bits(single))
}

// float16 are the bits of f as a float of half precision, if that holds its value.
func float16(f float32) (half uint16, exact bool) {
	const (
		mantissaBits     = 23
		halfMantissaBits = 10
		lost             = mantissaBits - halfMantissaBits
		minExponent      = -14 // of a normal number; subnormal ones lose a bit for each below
		maxExponent      = 15
	)
	bits := math.Float32bits(f)
	sign := uint16(bits >> 16 & 0x8000)
	if bits<<1 == 0 {
		return sign, true
	}
	exponent := int(bits>>mantissaBits&0xff) - 127
	mantissa := bits & (1<<mantissaBits - 1)
	switch {
	case exponent > maxExponent || exponent < minExponent-halfMantissaBits:
		return 0, false
	case exponent >= minExponent:
		if mantissa&(1<<lost-1) != 0 {
			return 0, false
		}
		return sign | uint16(exponent+maxExponent)<<halfMantissaBits | uint16(mantissa>>lost), true
	}
	mantissa |= 1 << mantissaBits
	shift := lost + minExponent - exponent
	if mantissa&(1<<shift-1) != 0 {
		return 0, false
	}
	return sign | uint16(mantissa>>shift), true
}

// fromFloat16 is the value of a float of half precision.
func fromFloat16(half uint16) float64 {
	exponent, mantissa := int(half>>10&0x1f), float64(half&0x3ff)
	var f float64
	switch exponent {
	case 0:
		f = math.Ldexp(mantissa, -24)
	case 0x1f:
		f = math.Inf(1)
		if mantissa != 0 {
			f = math.NaN()
		}
	default:
		f = math.Ldexp(mantissa+1024, exponent-25)
	}
	if half&0x8000 != 0 {
		return -f
	}
	return f
}
