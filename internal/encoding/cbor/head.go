package cbor

import (
	"encoding/binary"
	"math"
)

// SelfDescribed is tag 55799. It begins every response and every watch event, and also the object
// in an event. Items of a list do not have it.
const SelfDescribed = "\xd9\xd9\xf7"

// The major types: the upper three bits of the first byte of an item.
const (
	majorUint   byte = 0 << 5
	majorNegInt byte = 1 << 5
	majorBytes  byte = 2 << 5
	majorArray  byte = 4 << 5
	majorMap    byte = 5 << 5
	majorTag    byte = 6 << 5
	majorSimple byte = 7 << 5
)

// Special values of the lower five bits of the first byte.
const (
	argument1 = 24 // one byte of argument follows, and so on
	argument2 = 25
	argument4 = 26
	argument8 = 27

	simpleFalse = 20
	simpleTrue  = 21
	simpleNull  = 22
)

// tagBase64 precedes a byte string that is base64 in JSON.
const tagBase64 = 22

// appendHead appends the first byte of an item and its argument, in the fewest bytes that hold it.
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

// setHead writes the head of an item whose content begins at dst[start+reserved:] and extends to
// the end of dst. It moves the content if the head does not have the reserved size.
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

// appendString appends a string like apimachinery.
func appendString(dst []byte, s string) []byte {
	return append(appendHead(dst, majorBytes, uint64(len(s))), s...)
}

func appendInt(dst []byte, i int64) []byte {
	if i < 0 {
		return appendHead(dst, majorNegInt, uint64(^i))
	}
	return appendHead(dst, majorUint, uint64(i))
}

// appendFloat appends f, which is not NaN, in the fewest bits that hold its value.
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

// float16 returns the bits of f as a half-precision float, if that holds its value.
func float16(f float32) (half uint16, exact bool) {
	const (
		mantissaBits     = 23
		halfMantissaBits = 10
		lost             = mantissaBits - halfMantissaBits
		minExponent      = -14 // of a normal number; subnormal ones lose one bit for each exponent below
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
