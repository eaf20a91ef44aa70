package cbor

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// The maximum number of map members and array elements that kube-apiserver accepts.
const (
	maxPairs    = 2097152
	maxElements = math.MaxInt32
)

// reader reads CBOR.
type reader struct {
	src []byte
	pos int
}

// wellFormed checks that src is exactly one item. Its errors are those of the library that
// kube-apiserver uses. A well-formed item can be read without bounds checks.
func wellFormed(src []byte) error {
	if len(src) == 0 {
		return io.EOF
	}
	r := reader{src: src}
	if err := r.check(0); err != nil {
		return err
	}
	if r.pos < len(src) {
		return fmt.Errorf("cbor: %d bytes of extraneous data starting at index %d", len(src)-r.pos, r.pos)
	}
	return nil
}

// check skips an item nested in depth maps, arrays and tags.
func (r *reader) check(depth int) error {
	c, n, err := r.head()
	if err != nil {
		return err
	}
	switch major := c & majorMask; major {
	case majorBytes, majorText:
		if c&infoMask == indefinite {
			return r.checkChunks(major)
		}
		return r.checkString(c, n)
	case majorArray, majorMap:
		if depth++; depth > maxDepth {
			return errDepth()
		}
		if c&infoMask == indefinite {
			return r.checkUntilBreak(c, depth)
		}
		return r.checkMembers(c, n, depth)
	case majorTag:
		for {
			if r.pos == len(r.src) {
				return io.ErrUnexpectedEOF
			}
			if n == tagBignum || n == tagNegativeBignum {
				return notAccepted(majorTag, "bignum")
			}
			if r.src[r.pos]&majorMask != majorTag {
				return r.check(depth)
			}
			if _, n, err = r.head(); err != nil {
				return err
			}
			if depth++; depth > maxDepth {
				return errDepth()
			}
		}
	}
	return nil
}

func errDepth() error { return fmt.Errorf("cbor: exceeded max nested level %d", maxDepth) }

func (r *reader) checkString(c byte, n uint64) error {
	if n > math.MaxInt64 {
		return fmt.Errorf("cbor: %s length %d is too large, causing integer overflow", typeName(c), n)
	}
	if uint64(len(r.src)-r.pos) < n {
		return io.ErrUnexpectedEOF
	}
	r.pos += int(n)
	return nil
}

// checkMembers skips the members of n elements or pairs.
func (r *reader) checkMembers(c byte, n uint64, depth int) error {
	if n > math.MaxInt64 {
		return fmt.Errorf("cbor: %s length %d is too large, it would cause integer overflow", typeName(c), n)
	}
	if err := checkCount(c, n); err != nil {
		return err
	}
	if c&majorMask == majorMap {
		n *= 2
	}
	for range n {
		if err := r.check(depth); err != nil {
			return err
		}
	}
	return nil
}

func checkCount(c byte, n uint64) error {
	if c&majorMask == majorArray && n > maxElements {
		return fmt.Errorf("cbor: exceeded max number of elements %d for CBOR array", maxElements)
	}
	if c&majorMask == majorMap && n > maxPairs {
		return fmt.Errorf("cbor: exceeded max number of key-value pairs %d for CBOR map", maxPairs)
	}
	return nil
}

// checkUntilBreak skips the members of an array or map of indefinite length.
func (r *reader) checkUntilBreak(c byte, depth int) error {
	isMap := c&majorMask == majorMap
	for n := uint64(0); ; n++ {
		if r.pos == len(r.src) {
			return io.ErrUnexpectedEOF
		}
		if r.src[r.pos] == breakCode {
			if isMap && n%2 == 1 {
				return errBreak()
			}
			r.pos++
			return nil
		}
		if err := r.check(depth); err != nil {
			return err
		}
		read := n + 1
		if isMap {
			read /= 2
		}
		if err := checkCount(c, read); err != nil {
			return err
		}
	}
}

func errBreak() error { return fmt.Errorf("cbor: unexpected %q code", "break") }

// checkChunks skips the chunks of a string of indefinite length.
func (r *reader) checkChunks(major byte) error {
	for {
		if r.pos == len(r.src) {
			return io.ErrUnexpectedEOF
		}
		c := r.src[r.pos]
		if c == breakCode {
			r.pos++
			return nil
		}
		if c&majorMask != major {
			return fmt.Errorf("cbor: wrong element type %s for indefinite-length %s", typeName(c), typeName(major))
		}
		if c&infoMask == indefinite {
			return fmt.Errorf("cbor: indefinite-length %s chunk is not definite-length", typeName(major))
		}
		c, n, err := r.head()
		if err == nil {
			err = r.checkString(c, n)
		}
		if err != nil {
			return err
		}
	}
}

// head reads the first byte of an item and its argument.
func (r *reader) head() (c byte, argument uint64, err error) {
	if r.pos >= len(r.src) {
		return 0, 0, io.ErrUnexpectedEOF
	}
	c = r.src[r.pos]
	major, info := c&majorMask, c&infoMask
	switch {
	case info < argument1:
		r.pos++
		return c, uint64(info), nil
	case info <= argument8:
		if r.pos+1+1<<(info-argument1) > len(r.src) {
			return 0, 0, io.ErrUnexpectedEOF
		}
		argument = r.argument()
		if major == majorSimple {
			err = checkSimple(info, argument)
		}
		return c, argument, err
	case info == indefinite && major == majorSimple:
		return 0, 0, errBreak()
	case info == indefinite && major != majorUint && major != majorNegInt && major != majorTag:
		r.pos++
		return c, 0, nil
	}
	return 0, 0, fmt.Errorf("cbor: invalid additional information %d for type %s", info, typeName(c))
}

// checkSimple rejects simple values that JSON cannot represent.
func checkSimple(info byte, argument uint64) error {
	if info == argument1 {
		if argument < 32 {
			return fmt.Errorf("cbor: invalid simple value %d for type primitives", argument)
		}
		return nil
	}
	switch f := floatOf(info, argument); {
	case math.IsNaN(f):
		return notAccepted(majorSimple, "floating-point NaN")
	case math.IsInf(f, 0):
		return notAccepted(majorSimple, "floating-point infinity")
	}
	return nil
}

// argument reads a complete head and returns its argument.
func (r *reader) argument() uint64 {
	info := r.src[r.pos] & infoMask
	b := r.src[r.pos+1:]
	r.pos++
	switch info {
	case argument1:
		r.pos++
		return uint64(b[0])
	case argument2:
		r.pos += 2
		return uint64(binary.BigEndian.Uint16(b))
	case argument4:
		r.pos += 4
		return uint64(binary.BigEndian.Uint32(b))
	case argument8:
		r.pos += 8
		return binary.BigEndian.Uint64(b)
	}
	return uint64(info)
}

// length counts the members of an array or map, which may end with a break.
type length struct {
	left    uint64
	unknown bool
	read    int
}

// length reads the head of an array or map.
func (r *reader) length() length {
	if r.src[r.pos]&infoMask == indefinite {
		r.pos++
		return length{unknown: true}
	}
	return length{left: r.argument()}
}

// more reports whether a member follows, and skips a break.
func (l *length) more(r *reader) bool {
	if l.unknown {
		if r.src[r.pos] == breakCode {
			r.pos++
			return false
		}
	} else if l.left == 0 {
		return false
	}
	l.left--
	l.read++
	return true
}

// typeName returns the library's name for an item that begins with c.
func typeName(c byte) string {
	switch c & majorMask {
	case majorUint:
		return "positive integer"
	case majorNegInt:
		return "negative integer"
	case majorBytes:
		return "byte string"
	case majorText:
		return "UTF-8 text string"
	case majorArray:
		return "array"
	case majorMap:
		return "map"
	case majorTag:
		return "tag"
	}
	return "primitives"
}

// cannotUnmarshal returns the library's error for an item of an unexpected type.
func cannotUnmarshal(c byte, goType, detail string) error {
	if detail != "" {
		detail = " (" + detail + ")"
	}
	return fmt.Errorf("cbor: cannot unmarshal %s into Go value of type %s%s", typeName(c), goType, detail)
}

// notAccepted returns the library's error for an item that kube-apiserver does not accept.
func notAccepted(c byte, what string) error {
	return fmt.Errorf("cbor: data item of cbor type %s is not accepted by protocol: %s", typeName(c), what)
}
