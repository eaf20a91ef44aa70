package object

import (
	"fmt"

	"github.com/kubeweir/kubeweir/encoding"
	"github.com/kubeweir/kubeweir/encoding/json"
)

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
