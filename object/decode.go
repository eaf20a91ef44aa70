package object

import (
	"fmt"
	"math"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/encoding"
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
	err := codec.Scan(&sc.Scan)
	if err != nil {
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
