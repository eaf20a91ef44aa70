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

// coder compresses pieces. It is safe for concurrent use.
type coder struct {
	runs, events sync.Pool // *deflater
	zstd         *zstd.Encoder
	crc          crcCombiner
}

// Levels of compression. Of runs that know the ones before, 3 leaves a third less than 1, which is
// upstream's, in a tenth more time, and 5 another seventh in a third more. Events, each by itself,
// are as large with any.
const (
	runLevel   = 3
	eventLevel = 1
)

func newCoder() *coder {
	// Without a writer NewWriter makes an encoder for EncodeAll, which starts no
	// goroutines; it fails for wrong options only.
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
			panic(err) // the level is wrong
		}
		d.w = w
		return d
	}
}

// piece compresses raw so that the result can stand among other pieces: in gzip behind known, of
// which no more than maxKnown counts, in zstd anywhere.
func (c *coder) piece(coding api.Compression, known, raw []byte) []byte {
	if coding == api.Zstd {
		return bytes.Clone(c.zstd.EncodeAll(raw, nil))
	}
	d := c.runs.Get().(*deflater)
	defer c.runs.Put(d)
	return bytes.Clone(d.deflate(known, raw))
}

// appendPiece appends texts, compressed as one piece that can stand anywhere.
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

// deflate compresses texts behind known. What it returns is good until the next call.
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

// literal is a short text as it stands between pieces.
func (c *coder) literal(coding api.Compression, text string) []byte {
	switch {
	case text == "":
		return nil
	case coding == api.Zstd:
		return c.zstd.EncodeAll([]byte(text), nil)
	}
	return appendStored(nil, []byte(text), false)
}

// checksum is the checksum of a piece and the shift that combines it.
func (c *coder) checksum(raw []byte) (crc, shift uint32) {
	return crc32.ChecksumIEEE(raw), c.crc.shift(int64(len(raw)))
}

func updateCRC(crc uint32, text string) uint32 {
	return crc32.Update(crc, crc32.IEEETable, []byte(text))
}

// gzipHeader: deflate, no name, no time, fastest, unknown system.
const gzipHeader = "\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"

// maxStored is the longest stored block.
const maxStored = 1<<16 - 1

// appendStored appends text as stored blocks (RFC 1951, 3.2.4). It must begin at
// a byte, as the end of a piece does.
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

// crcCombiner computes the CRC-32 of joined texts from theirs, as zlib's
// crc32_combine does: a checksum is moved past a text of n bytes by multiplying
// it by x^(8n) modulo the polynomial.
type crcCombiner struct {
	powers [32]uint32 // x^(2^i)
}

// crcPolynomial is that of gzip, with its bits reversed.
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

// shift is x^(8n).
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

// combine is the checksum of a text with checksum a followed by one with
// checksum b, whose shift is given.
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

// maxRunBytes ends a run wherever the last one ended.
const maxRunBytes = 4 * runBytes

// runBytes is the size that runs have on the average, before compression. Twice the size makes a
// change twice as dear.
const runBytes = 64 << 10
