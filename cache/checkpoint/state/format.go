package state

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/klauspost/compress/s2"
)

const (
	// format is the only format that this version writes and reads.
	format = 1

	magic        = "kubeweir-image\n\x00"
	identitySize = 16
	// preambleSize is the size of magic, format (uint32), encrypted (byte) and identity.
	preambleSize = len(magic) + 4 + 1 + identitySize
	// frameSize is the size of a block's length (uint32), checksum (uint32) and kind (byte).
	frameSize = 4 + 4 + 1
	// maxBlock limits the content of a block, compressed or not. Objects are far smaller.
	maxBlock = 1 << 30
)

// ErrDamaged reports that a file is not, or not completely, what this package wrote.
var ErrDamaged = errors.New("damaged")

// kind is the type of a block.
type kind byte

const (
	kindHeader  kind = 'h'
	kindObjects kind = 'o'
	kindCommit  kind = 'c'
	kindRecord  kind = 'r'
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// layout describes the blocks of one file.
type layout struct {
	identity []byte
	bound    string      // what the file is bound to besides its identity
	aead     cipher.AEAD // nil: blocks are not encrypted
}

// newLayout returns the layout of the file with an identity. Each file has its own key, made of key
// and its identity, so the number of random nonces per key is small.
func newLayout(key, identity []byte, bound string) (*layout, error) {
	l := &layout{identity: identity, bound: bound}
	if key == nil {
		return l, nil
	}
	fileKey, err := hkdf.Key(sha256.New, key, identity, "kubeweir state image", KeySize)
	if err != nil {
		return nil, fmt.Errorf("key of a state file: %w", err)
	}
	c, err := aes.NewCipher(fileKey)
	if err != nil {
		return nil, fmt.Errorf("key of a state file: %w", err)
	}
	l.aead, err = cipher.NewGCMWithRandomNonce(c)
	return l, err
}

// place returns what a block's checksum and encryption are bound to.
func (l *layout) place(k kind, index uint64) []byte {
	place := make([]byte, 0, identitySize+9+len(l.bound))
	place = append(place, l.identity...)
	place = binary.LittleEndian.AppendUint64(place, index)
	place = append(place, byte(k))
	return append(place, l.bound...)
}

// appendBlock appends a block with content to dst.
func (l *layout) appendBlock(dst []byte, k kind, index uint64, content, scratch []byte) (appended, packed []byte) {
	packed = s2.Encode(scratch[:cap(scratch)], content)
	place := l.place(k, index)
	start := len(dst)
	dst = append(dst, make([]byte, frameSize)...)
	if l.aead != nil {
		dst = l.aead.Seal(dst, nil, packed, place)
	} else {
		dst = append(dst, packed...)
	}
	frame := dst[start:]
	binary.LittleEndian.PutUint32(frame, uint32(len(frame)-frameSize))
	frame[8] = byte(k)
	binary.LittleEndian.PutUint32(frame[4:], checksum(place, frame[frameSize:]))
	return dst, packed
}

func checksum(place, content []byte) uint32 {
	return crc32.Update(crc32.Checksum(place, castagnoli), castagnoli, content)
}

// unpack returns the content of a block.
func (l *layout) unpack(k kind, index uint64, packed []byte) ([]byte, error) {
	if l.aead != nil {
		var err error
		if packed, err = l.aead.Open(nil, nil, packed, l.place(k, index)); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
		}
	}
	n, err := s2.DecodedLen(packed)
	if err != nil || n > maxBlock {
		return nil, fmt.Errorf("%w: a block of %d bytes (%w)", ErrDamaged, n, err)
	}
	content, err := s2.Decode(nil, packed)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return content, nil
}

func appendPreamble(dst []byte, sealed bool, identity []byte) []byte {
	dst = append(dst, magic...)
	dst = binary.LittleEndian.AppendUint32(dst, format)
	dst = append(dst, 0)
	if sealed {
		dst[len(dst)-1] = 1
	}
	return append(dst, identity...)
}

// parsePreamble returns the identity of a file.
func parsePreamble(p []byte, sealed bool) (identity []byte, err error) {
	if len(p) < preambleSize || string(p[:len(magic)]) != magic {
		return nil, fmt.Errorf("%w: not a checkpoint file", ErrDamaged)
	}
	p = p[len(magic):]
	if has := binary.LittleEndian.Uint32(p); has != format {
		return nil, fmt.Errorf("of another format: format %d, this version reads %d", has, format)
	}
	if (p[4] != 0) != sealed {
		return nil, fmt.Errorf("of another format: encrypted %t, want %t", p[4] != 0, sealed)
	}
	return p[5 : 5+identitySize], nil
}

// KeySize is the size of a key in bytes.
const KeySize = 32

// ParseKey parses a key file: 32 bytes, or their base64 encoding on one line.
func ParseKey(content []byte) ([]byte, error) {
	if len(content) == KeySize {
		return content, nil
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(content)))
	if err != nil || len(key) != KeySize {
		return nil, fmt.Errorf("must contain a key of %d bytes, raw or in base64 (head -c %[1]d /dev/urandom | base64), not %d bytes", KeySize, len(content))
	}
	return key, nil
}

// A block of objects is a sequence of items: a byte, the length as uvarint, and the bytes of the
// object or the key of a deleted one.
const (
	itemSet    = 0
	itemDelete = 1
)

// block is a checkpoint.Block.
type block struct {
	layout *layout
	kind   kind
	index  uint64
	sealed []byte
	commit []byte
}

func (b *block) content() ([]byte, error) { return b.layout.unpack(b.kind, b.index, b.sealed) }

// Commit implements checkpoint.Block.
func (b *block) Commit() []byte { return b.commit }

// Each implements checkpoint.Block.
func (b *block) Each(set func([]byte) error, deleted func(string) error) error {
	content, err := b.content()
	for err == nil && len(content) > 0 {
		op := content[0]
		n, used := binary.Uvarint(content[1:])
		if used <= 0 || n > uint64(len(content)-1-used) {
			return fmt.Errorf("%w: invalid item length", ErrDamaged)
		}
		item := content[1+used : 1+used+int(n)]
		content = content[1+used+int(n):]
		switch op {
		case itemSet:
			err = set(item)
		case itemDelete:
			err = deleted(string(item))
		default:
			err = fmt.Errorf("%w: unknown item kind %d", ErrDamaged, op)
		}
	}
	return err
}
