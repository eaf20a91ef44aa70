// Package pieces compresses bodies in pieces that can be concatenated, in gzip and in zstd. Package
// form uses it. It imports nothing of the cache.
package pieces

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"sync"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/zstd"

	"github.com/kubeweir/kubeweir/internal/api"
)

// Encoder compresses pieces of bodies. It is safe for concurrent use.
type Encoder struct {
	runs, events sync.Pool // *deflater
	zstd         *zstd.Encoder
}

// Compression levels. For runs that are compressed behind the previous run, level 3 saves a third
// over level 1 (kube-apiserver's level) for a tenth more time; level 5 saves another seventh for a
// third more. Single events have the same size at every level.
const (
	runLevel   = 3
	eventLevel = 1
)

// New returns an Encoder.
func New() *Encoder {
	// Without a writer, NewWriter returns an encoder for EncodeAll and starts no goroutines. It
	// fails only for invalid options.
	encoder, err := zstd.NewWriter(nil,
		zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false), zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(MaxPiece))
	if err != nil {
		panic(err)
	}
	c := &Encoder{zstd: encoder}
	c.runs.New, c.events.New = newDeflater(runLevel), newDeflater(eventLevel)
	return c
}

type deflater struct {
	w   *flate.Writer
	out bytes.Buffer
}

func newDeflater(level int) func() any {
	return func() any {
		d := &deflater{}
		w, err := flate.NewWriter(&d.out, level)
		if err != nil {
			panic(err) // only if the level is invalid
		}
		d.w = w
		return d
	}
}

// Piece compresses raw so that the result can be concatenated with other pieces: in gzip after
// known, of which at most MaxKnown bytes count; in zstd anywhere.
func (c *Encoder) Piece(coding api.Compression, known, raw []byte) []byte {
	if coding == api.Zstd {
		return bytes.Clone(c.zstd.EncodeAll(raw, nil))
	}
	d := c.runs.Get().(*deflater)
	defer c.runs.Put(d)
	return bytes.Clone(d.deflate(known, raw))
}

// appendPiece appends texts compressed as one piece that can stand anywhere.
func (c *Encoder) appendPiece(b []byte, coding api.Compression, texts [][]byte) []byte {
	if coding == api.Zstd {
		if len(texts) != 1 {
			return c.zstd.EncodeAll(bytes.Join(texts, nil), b)
		}
		return c.zstd.EncodeAll(texts[0], b)
	}
	d := c.events.Get().(*deflater)
	defer c.events.Put(d)
	return append(b, d.deflate(nil, texts...)...)
}

// deflate compresses texts with known as the preceding text. The result is valid until the next
// call.
func (d *deflater) deflate(known []byte, texts ...[]byte) []byte {
	d.out.Reset()
	d.w.ResetDict(&d.out, known)
	// Writes to a bytes.Buffer do not fail.
	for _, text := range texts {
		_, _ = d.w.Write(text)
	}
	_ = d.w.Flush() // ends at a byte
	return d.out.Bytes()
}

// Literal returns a short text encoded to stand between pieces.
func (c *Encoder) Literal(coding api.Compression, text string) []byte {
	switch {
	case text == "":
		return nil
	case coding == api.Zstd:
		return c.zstd.EncodeAll([]byte(text), nil)
	}
	return AppendStored(nil, []byte(text), false)
}

// GzipHeader is a gzip header: deflate, no name, no time, fastest, unknown system.
const GzipHeader = "\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"

// MaxStored is the length limit of a stored block.
const MaxStored = 1<<16 - 1

// AppendStored appends text as stored blocks (RFC 1951, section 3.2.4). Stored blocks must begin at
// a byte boundary, which is where a piece ends.
func AppendStored(b, text []byte, final bool) []byte {
	for {
		block := text[:min(len(text), MaxStored)]
		text = text[len(block):]
		last := byte(0)
		if final && len(text) == 0 {
			last = 1
		}
		b = append(b, last)
		b = binary.LittleEndian.AppendUint16(b, uint16(len(block)))
		b = binary.LittleEndian.AppendUint16(b, ^uint16(len(block)))
		b = append(b, block...)
		if len(text) == 0 {
			return b
		}
	}
}

// The CRC-32 of concatenated texts is computed from their checksums, like zlib's crc32_combine: a
// checksum is moved past a text of n bytes by multiplying it by x^(8n) modulo the polynomial.

// crcPolynomial is the polynomial of gzip's CRC-32, bit-reversed.
const crcPolynomial = 0xedb88320

// multiplyCRC multiplies two polynomials modulo crcPolynomial.
func multiplyCRC(a, b uint32) (product uint32) {
	for ; a != 0; a <<= 1 {
		product ^= b & -(a >> 31)
		b = b>>1 ^ crcPolynomial&-(b&1)
	}
	return product
}

// ShiftCRC returns x^(8n).
func ShiftCRC(n int64) uint32 {
	product, power := uint32(1)<<31, uint32(1)<<23 // 1 and x^8
	for ; n > 0; n >>= 1 {
		if n&1 != 0 {
			product = multiplyCRC(power, product)
		}
		power = multiplyCRC(power, power)
	}
	return product
}

// CombineCRC returns the checksum of two concatenated texts with the checksums a and b. shift is
// the shift of the second text.
func CombineCRC(a, b, shift uint32) uint32 { return multiplyCRC(shift, a) ^ b }

// Enclose returns the compressed head and tail of a body whose items have the given size and
// checksum before compression.
func (c *Encoder) Enclose(coding api.Compression, head, tail []byte, size int64, crc uint32) (before, after []byte) {
	if coding == api.Zstd {
		return c.zstd.EncodeAll(head, nil), c.zstd.EncodeAll(tail, nil)
	}
	before = AppendStored([]byte(GzipHeader), head, false)
	crc = CombineCRC(crc32.ChecksumIEEE(head), crc, ShiftCRC(size))
	crc = crc32.Update(crc, crc32.IEEETable, tail)
	return before, AppendTrailer(nil, tail, crc, uint32(int64(len(head)+len(tail))+size))
}

// Whole returns text compressed as a whole body.
func (c *Encoder) Whole(coding api.Compression, text []byte) []byte {
	before, after := c.Enclose(coding, nil, nil, int64(len(text)), crc32.ChecksumIEEE(text))
	return append(append(before, c.Piece(coding, nil, text)...), after...)
}

// AppendTrailer appends tail as the end of a gzip body, whose checksum and size modulo 2^32 are crc
// and size.
func AppendTrailer(b, tail []byte, crc, size uint32) []byte {
	b = AppendStored(b, tail, true)
	b = binary.LittleEndian.AppendUint32(b, crc)
	return binary.LittleEndian.AppendUint32(b, size)
}

// MaxKnown is the window of deflate.
const MaxKnown = 32 << 10

// MaxPiece is the maximum size of a piece before compression, except for single objects.
const MaxPiece = 256 << 10

// MinCompressed is the size from which events are compressed. Compression costs about 4 us plus
// 5 ns per byte (10 to 40 us for a pod of 6 KB), once for all watches, and makes events three
// to four times smaller. Below this size little is gained.
const MinCompressed = 512

// flushBlock is an empty stored block, at which decoders emit everything before it.
const flushBlock = "\x00\x00\x00\xff\xff"

// Frame is a compressed event. It begins with what a watch's checksum needs: the event's
// CRC-32, its shift and its length.
type Frame []byte

const frameHead = 12

func (f Frame) Data() []byte   { return f[frameHead:] }
func (f Frame) CRC() uint32    { return binary.LittleEndian.Uint32(f) }
func (f Frame) Shift() uint32  { return binary.LittleEndian.Uint32(f[4:]) }
func (f Frame) Length() uint32 { return binary.LittleEndian.Uint32(f[8:]) }

// AppendFrame appends the Frame with the given parts. In gzip, a text of less than least bytes is
// stored.
func (c *Encoder) AppendFrame(b []byte, coding api.Compression, least int, texts [][]byte) []byte {
	n, crc := 0, uint32(0)
	for _, text := range texts {
		n += len(text)
		crc = crc32.Update(crc, crc32.IEEETable, text)
	}
	b = binary.LittleEndian.AppendUint32(b, crc)
	b = binary.LittleEndian.AppendUint32(b, ShiftCRC(int64(n)))
	b = binary.LittleEndian.AppendUint32(b, uint32(n))
	if coding == api.Zstd || n >= least {
		return c.appendPiece(b, coding, texts)
	}
	for _, text := range texts {
		b = AppendStored(b, text, false)
	}
	return append(b, flushBlock...)
}
