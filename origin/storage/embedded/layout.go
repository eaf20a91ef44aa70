package embedded

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/kubeweir/kubeweir/origin/storage"
)

// Spaces of the Pebble key space, by first byte. The package comment says what each holds.
const (
	spaceExpiry  = 'e'
	spaceGarbage = 'g'
	spaceKeys    = 'k'
	spaceMeta    = 'm'
	spaceLog     = 'r'
	spaceMarks   = 't'
)

// format is the version of the layout; a change of it that this code could not
// read, or that an older one would misread, raises it.
const format = 1

var (
	metaFormat    = []byte{spaceMeta, 'f'}
	metaCompacted = []byte{spaceMeta, 'c'}
)

// errCorrupt means that data read back differ from those written.
var errCorrupt = errors.New("the data are damaged")

func corrupt(what string, at []byte) error {
	return fmt.Errorf("%w: %s at %q", errCorrupt, what, at)
}

// logKey returns the key of the change of a revision.
func logKey(rev uint64) []byte { return numbered(spaceLog, rev) }

// garbageKey returns the key of the garbage of a change.
func garbageKey(rev uint64) []byte { return numbered(spaceGarbage, rev) }

func markKey(rev uint64) []byte { return numbered(spaceMarks, rev) }

func numbered(space byte, n uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{space}, n)
}

func number(key []byte) (uint64, error) {
	if len(key) != 9 {
		return 0, corrupt("a key of the wrong length", key)
	}
	return binary.BigEndian.Uint64(key[1:]), nil
}

func expiryKey(at int64, rev uint64) []byte {
	return binary.BigEndian.AppendUint64(numbered(spaceExpiry, uint64(at)), rev)
}

func parseExpiryKey(key []byte) (at int64, rev uint64, err error) {
	if len(key) != 17 {
		return 0, 0, corrupt("a time to live of the wrong length", key)
	}
	at64 := binary.BigEndian.Uint64(key[1:])
	if at64 > math.MaxInt64 {
		return 0, 0, corrupt("a time to live out of range", key)
	}
	return int64(at64), binary.BigEndian.Uint64(key[9:]), nil
}

// A key in the key space ends in a terminator, so that the order of its bytes is
// that of the keys although versions follow; a zero in it is escaped. Any other
// byte is itself.
const (
	escape     = 0x00
	terminator = 0x01 // behind escape: the end
	behind     = 0x02 // behind escape: above every version of the key, below every other key
	zero       = 0xff // behind escape: a zero
)

func appendEscaped(buf []byte, key string) []byte {
	for {
		i := strings.IndexByte(key, 0)
		if i < 0 {
			return append(buf, key...)
		}
		buf = append(append(buf, key[:i]...), escape, zero)
		key = key[i+1:]
	}
}

// appendVersionKey appends the key of a version of a key. Newer versions sort first.
func appendVersionKey(buf []byte, key string, rev uint64) []byte {
	buf = appendEscaped(append(buf, spaceKeys), key)
	return binary.BigEndian.AppendUint64(append(buf, escape, terminator), ^rev)
}

// splitVersionKey returns the escaped key and the revision.
func splitVersionKey(at []byte) (escaped []byte, rev uint64, err error) {
	n := len(at) - 10
	if n < 1 || at[0] != spaceKeys || at[n] != escape || at[n+1] != terminator {
		return nil, 0, corrupt("a version", at)
	}
	return at[1:n], ^binary.BigEndian.Uint64(at[n+2:]), nil
}

func unescape(escaped []byte) string {
	if bytes.IndexByte(escaped, escape) < 0 {
		return string(escaped)
	}
	return string(bytes.ReplaceAll(escaped, []byte{escape, zero}, []byte{0}))
}

// keyBounds returns the bounds of the versions of all keys from from on that have a prefix.
func keyBounds(prefix, from string) (lower, upper []byte) {
	lower = appendEscaped([]byte{spaceKeys}, prefix)
	upper = slices.Clone(lower)
	for i := len(upper) - 1; ; i-- {
		if upper[i] != 0xff { // the space's own byte is not, so this ends
			upper = upper[:i+1]
			upper[i]++
			break
		}
	}
	if from > prefix {
		lower = appendEscaped([]byte{spaceKeys}, from)
	}
	return lower, upper
}

// Values in the key space.
var (
	versionLive = []byte{}
	versionGone = []byte{0}
)

// An entry is one change in the log: its kind, the revision of the key's previous version (0 if
// it did not exist), key and value.
type entry struct {
	kind     storage.EventType
	previous uint64
	key      []byte
	value    []byte
}

func appendEntry(buf []byte, kind storage.EventType, previous uint64, key string, value []byte) []byte {
	buf = append(buf, byte(kind))
	buf = binary.AppendUvarint(buf, previous)
	buf = binary.AppendUvarint(buf, uint64(len(key)))
	buf = append(buf, key...)
	return append(buf, value...)
}

// parseEntry returns an entry whose key and value are parts of b.
func parseEntry(b []byte) (entry, error) {
	e := entry{}
	if len(b) == 0 || b[0] < byte(storage.Created) || b[0] > byte(storage.Deleted) {
		return e, corrupt("a change", b[:min(len(b), 32)])
	}
	e.kind = storage.EventType(b[0])
	rest := b[1:]
	previous, n := binary.Uvarint(rest)
	if n <= 0 {
		return e, corrupt("a change", b[:min(len(b), 32)])
	}
	rest = rest[n:]
	size, n := binary.Uvarint(rest)
	if n <= 0 || size > uint64(len(rest)-n) {
		return e, corrupt("a change", b[:min(len(b), 32)])
	}
	rest = rest[n:]
	e.previous, e.key, e.value = previous, rest[:size], rest[size:]
	return e, nil
}

// garbageValue encodes the garbage record of a change: the revision of the version that the change
// replaced, whether the change is a deletion (and so garbage itself), and the key.
func garbageValue(previous uint64, deleted bool, key string) []byte {
	v := binary.BigEndian.AppendUint64(make([]byte, 0, 9+len(key)), previous)
	if deleted {
		v = append(v, 1)
	} else {
		v = append(v, 0)
	}
	return append(v, key...)
}

func parseGarbage(v []byte) (previous uint64, deleted bool, key string, err error) {
	if len(v) < 9 {
		return 0, false, "", corrupt("garbage", v)
	}
	return binary.BigEndian.Uint64(v), v[8] == 1, string(v[9:]), nil
}
