package object

import (
	"fmt"
	"math"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/encoding"
	"github.com/kubeweir/kubeweir/encoding/json"
	"github.com/kubeweir/kubeweir/encoding/protobuf"
)

// Decode scans raw, which it keeps (see WithoutManagedFields for an exception): the caller must not
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
	if s.dropManaged {
		sc.Encoded = encoding.Drop(codec, sc.Encoded)
	}
	o, err := sc.object()
	if err != nil {
		return nil, fmt.Errorf("decoding %s object: %w", enc, err)
	}
	return o, nil
}

// AtRV returns o as if it had been written at rv: the same object with another resourceVersion in
// its bytes, under an ID of its own. A watch sends it when an object leaves the watcher's selector:
// the state that still matched, with the version of the change. o stays as it is.
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

// Redacted returns o, which is in JSON, as json.Redact leaves it, under the same ID; o itself if
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

// Codec returns what reads an encoding in which collections can be kept; nil for any other.
func Codec(enc api.Encoding) encoding.Codec {
	switch enc {
	case api.JSON:
		return json.Codec{}
	case api.Protobuf:
		return protobuf.Codec{}
	}
	return nil
}
