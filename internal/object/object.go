// Package object holds one immutable version of an API object as the bytes the upstream sent, plus
// the few things kubeweir needs to know about it. Bytes are scanned, never decoded into Go types
// and encoded again, so that a field newer than our libraries survives.
package object

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/encoding"
	"github.com/kubeweir/kubeweir/internal/encoding/json"
	"github.com/kubeweir/kubeweir/internal/encoding/protobuf"
	"github.com/kubeweir/kubeweir/internal/shard"
)

// Object is one version of one object. It is immutable after Decode and may be
// shared by any number of goroutines.
type Object struct {
	// Key is "namespace/name", or "name" for cluster-scoped objects; Namespace
	// and Name are substrings of it. Keys order bytewise, as etcd does.
	Key, Namespace, Name string
	UID                  string
	// RV is metadata.resourceVersion.
	RV uint64
	// CreationUnix is metadata.creationTimestamp in seconds since 1970, 0 when the object has none.
	CreationUnix int64
	// Labels are sorted by key.
	Labels Labels
	// Fields are the values of the schema's selectable fields beyond
	// metadata.name and metadata.namespace, in the order of Schema.Fields.
	Fields []string
	// Encoded is the object as the upstream encodes it, and where its metadata is.
	encoding.Encoded
	// ListOffset is, for JSON, where the form used in lists begins; see json.Item.
	ListOffset int
	// ID is unique among all objects decoded by this process. It is the key of forms derived from
	// this version.
	ID uint64

	// uidHash is the hash of UID. It is computed with the object, because each watch of a shard
	// needs it for each event; it fits into the allocation's size class.
	uidHash uint64
}

// ShardHash returns the hash that assigns the object to a shard by key.
func (o *Object) ShardHash(key shard.Key) uint64 {
	if key == shard.UID {
		return o.uidHash
	}
	return shard.Hash(o.Namespace)
}

// lastID is process-wide because Object.ID promises uniqueness across all
// schemas: derived forms of every collection share one cache.
var lastID atomic.Uint64

// Metadata returns the encoded metadata inside Raw.
func (o *Object) Metadata() []byte { return o.Raw[o.MetaStart:o.MetaEnd] }

// DroppedMetadata returns the encoded metadata without managedFields, as two parts of Raw.
func (o *Object) DroppedMetadata() (before, after []byte) {
	if o.ManagedEnd == 0 {
		return o.Metadata(), nil
	}
	return o.Raw[o.MetaStart:o.ManagedStart], o.Raw[o.ManagedEnd:o.MetaEnd]
}

// Label is one label.
type Label struct{ Key, Value string }

// Labels are sorted by Key, each key once.
type Labels []Label

// scanLabels is the number of labels up to which a scan is faster than a binary search. The API
// does not bound the number of labels: 20,000 are 240 KB.
const scanLabels = 16

// Lookup returns the value of a label and whether the object has it.
func (l Labels) Lookup(key string) (value string, exists bool) {
	if len(l) > scanLabels {
		i, _ := slices.BinarySearchFunc(l, key, func(l Label, key string) int { return strings.Compare(l.Key, key) })
		l = l[i:min(i+1, len(l))]
	}
	// Objects have a handful of labels: a scan beats a binary search, and comparing lengths first
	// decides nearly every step.
	for i := range l {
		if l[i].Key == key {
			return l[i].Value, true
		}
	}
	return "", false
}

// Decode scans raw and retains it (see WithoutManagedFields for an exception): the caller must not
// change it afterwards. The encoding is that of the collection; see Encoded.Raw for the form. raw
// must be one complete object with metadata.name and a numeric metadata.resourceVersion; the error
// names what is missing or malformed. If a member is repeated in one JSON object, its last value
// counts, as in encoding/json. Decode is safe for concurrent use.
func (s *Schema) Decode(enc api.Encoding, raw []byte) (*Object, error) {
	codec := Codec(enc)
	if codec == nil {
		return nil, fmt.Errorf("decoding object: unknown encoding %d", enc)
	}
	if len(raw) > math.MaxInt32 {
		return nil, fmt.Errorf("decoding %s object: %w", enc, encoding.TooLarge("object", math.MaxInt32))
	}
	sc := s.scan(raw)
	defer sc.release()
	if err := codec.Scan(&sc.Scan); err != nil {
		return nil, fmt.Errorf("decoding %s object: %w", enc, err)
	}
	if s.DropsManagedFields {
		sc.Encoded = encoding.Drop(codec, sc.Encoded)
	}
	o, err := sc.object()
	if err != nil {
		return nil, fmt.Errorf("decoding %s object: %w", enc, err)
	}
	return o, nil
}

// AtRV returns o as if it had been written at rv: the same object with another resourceVersion in
// its bytes and an ID of its own. A watch sends it when an object stops matching the watcher's
// selector: the last matching state, with the version of the change. o is not changed.
func (o *Object) AtRV(enc api.Encoding, rv uint64) (*Object, error) {
	if o.RV == rv {
		return o, nil
	}
	stamped, err := Codec(enc).Stamp(o.Encoded, rv)
	if err != nil {
		return nil, fmt.Errorf("restamping %s: %w", o.Key, err)
	}
	c := *o
	c.RV, c.ID, c.Encoded = rv, lastID.Add(1), stamped
	return &c, nil
}

// Redacted returns o, which is in JSON, redacted by json.Redact and with the same ID; o itself if
// there is nothing to redact. secret says that it is a Secret. Labels and fields stay the same, so
// the same selectors match.
func (o *Object) Redacted(secret bool) (*Object, error) {
	raw, err := json.Redact(o.Raw, secret)
	if err != nil {
		return nil, fmt.Errorf("redacting %s: %w", o.Key, err)
	}
	if len(raw) == len(o.Raw) && (len(raw) == 0 || &raw[0] == &o.Raw[0]) {
		return o, nil
	}
	scan := encoding.Scan{Encoded: encoding.Encoded{Raw: raw}}
	if err := (json.Codec{}).Scan(&scan); err != nil {
		return nil, fmt.Errorf("redacting %s: %w", o.Key, err)
	}
	c := *o
	c.Encoded, c.ListOffset = scan.Encoded, scan.ListOffset
	return &c, nil
}

// Codec returns the codec of an encoding in which collections can be stored; nil for any other.
func Codec(enc api.Encoding) encoding.Codec {
	switch enc {
	case api.JSON:
		return json.Codec{}
	case api.Protobuf:
		return protobuf.Codec{}
	}
	return nil
}
