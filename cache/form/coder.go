package form

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"sync"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/zstd"

	"github.com/kubeweir/kubeweir/api"
)

// coder compresses pieces of bodies. It is safe for concurrent use.
type coder struct {
	runs, events sync.Pool // *deflater
	zstd         *zstd.Encoder
	crc          crcCombiner
}

// Compression levels. For runs that are compressed behind the previous run, level 3 saves a third
// over level 1 (kube-apiserver's level) for a tenth more time; level 5 saves another seventh for a
// third more. Single events have the same size at every level.
const (
	runLevel   = 3
	eventLevel = 1
)

func newCoder() *coder {
	// Without a writer, NewWriter returns an encoder for EncodeAll and starts no goroutines. It
	// fails only for invalid options.
	encoder, err := zstd.NewWriter(nil,
		zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false), zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(maxRunBytes))
	if err != nil {
		panic(err)
	}
	c := &coder{zstd: encoder, crc: newCRCCombiner()}
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

// piece compresses raw so that the result can be concatenated with other pieces: in gzip after
// known, of which at most maxKnown bytes count; in zstd anywhere.
func (c *coder) piece(coding api.Compression, known, raw []byte) []byte {
	if coding == api.Zstd {
		return bytes.Clone(c.zstd.EncodeAll(raw, nil))
	}
	d := c.runs.Get().(*deflater)
	defer c.runs.Put(d)
	return bytes.Clone(d.deflate(known, raw))
}

// appendPiece appends texts compressed as one piece that can stand anywhere.
func (c *coder) appendPiece(b []byte, coding api.Compression, texts ...[]byte) []byte {
	if coding == api.Zstd {
		if len(texts) != 1 {
			return c.zstd.EncodeAll(join(texts), b)
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

// literal returns a short text encoded to stand between pieces.
func (c *coder) literal(coding api.Compression, text string) []byte {
	switch {
	case text == "":
		return nil
	case coding == api.Zstd:
		return c.zstd.EncodeAll([]byte(text), nil)
	}
	return appendStored(nil, []byte(text), false)
}

// checksum returns the CRC-32 of raw and the shift that combines it with others.
func (c *coder) checksum(raw []byte) (crc, shift uint32) {
	return crc32.ChecksumIEEE(raw), c.crc.shift(int64(len(raw)))
}

func updateCRC(crc uint32, text string) uint32 {
	return crc32.Update(crc, crc32.IEEETable, []byte(text))
}

// gzipHeader is a gzip header: deflate, no name, no time, fastest, unknown system.
const gzipHeader = "\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"

// maxStored is the length limit of a stored block.
const maxStored = 1<<16 - 1

// appendStored appends text as stored blocks (RFC 1951, section 3.2.4). Stored blocks must begin at
// a byte boundary, which is where a piece ends.
func appendStored(b, text []byte, final bool) []byte {
	for {
		block := text[:min(len(text), maxStored)]
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

// crcCombiner computes the CRC-32 of concatenated texts from their checksums, like zlib's
// crc32_combine: it moves a checksum past a text of n bytes by multiplying it by x^(8n) modulo the
// polynomial.
type crcCombiner struct {
	powers [32]uint32 // x^(2^i)
}

// crcPolynomial is the polynomial of gzip's CRC-32, bit-reversed.
const crcPolynomial = 0xedb88320

func newCRCCombiner() crcCombiner {
	var c crcCombiner
	p := uint32(1) << 30 // x
	for i := range c.powers {
		c.powers[i] = p
		p = multiplyCRC(p, p)
	}
	return c
}

// multiplyCRC multiplies two polynomials modulo crcPolynomial.
func multiplyCRC(a, b uint32) uint32 {
	product := uint32(0)
	for m := uint32(1) << 31; ; m >>= 1 {
		if a&m != 0 {
			product ^= b
			if a&(m-1) == 0 {
				return product
			}
		}
		if m == 1 {
			return product
		}
		if b&1 != 0 {
			b = b>>1 ^ crcPolynomial
		} else {
			b >>= 1
		}
	}
}

// shift returns x^(8n).
func (c *crcCombiner) shift(n int64) uint32 {
	product := uint32(1) << 31 // 1
	for i := 3; n > 0; i++ {
		if n&1 != 0 {
			product = multiplyCRC(c.powers[i%32], product)
		}
		n >>= 1
	}
	return product
}

// combine returns the checksum of two concatenated texts with the checksums a and b. shift is the
// shift of the second text.
func (c *crcCombiner) combine(a, b, shift uint32) uint32 { return multiplyCRC(shift, a) ^ b }

func join(frames [][]byte) []byte {
	n := 0
	for _, f := range frames {
		n += len(f)
	}
	joined := make([]byte, 0, n)
	for _, f := range frames {
		joined = append(joined, f...)
	}
	return joined
}

// maxRunBytes ends a run at this size, whatever its keys.
const maxRunBytes = 4 * runBytes

// runBytes is the average size of a run before compression. Doubling it doubles the cost of a
// change.
const runBytes = 64 << 10
