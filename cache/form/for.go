package form

import (
	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/object"
)

// For chooses the form in which objects that are kept in one encoding are given as rep;
// nil if they cannot be.
func (r *Renderer) For(res *Resource, stored api.Encoding, rep api.Representation) Form {
	if rep.Redacted {
		return r.redacted(res, stored, rep)
	}
	return r.formOf(res, stored, rep)
}

// formOf is For for objects as they are.
func (r *Renderer) formOf(res *Resource, stored api.Encoding, rep api.Representation) Form {
	common := base{r: r, res: res, rep: rep, enc: framings[rep.Encoding]}
	if rep.Encoding == api.CBOR {
		if stored == api.JSON && rep.Transform != api.Table {
			return newTranscoded(common)
		}
		return nil
	}
	switch rep.Transform {
	case api.Table:
		if rep.Encoding == api.JSON && stored == api.JSON && res.Printer != nil {
			return &tables{base: common}
		}
	case api.PartialMetadata:
		if stored == res.storedFor(rep.Encoding) {
			return &metadata{base: common}
		}
	case api.NoTransform:
		if rep.Encoding == stored {
			whole := plain{base: common, around: common.enc.Around()}
			if rep.DropManagedFields {
				return &dropped{plain: whole, codec: object.Codec(stored)}
			}
			return &whole
		}
	}
	return nil
}

// redacted is For for a representation that is to be redacted.
func (r *Renderer) redacted(res *Resource, stored api.Encoding, rep api.Representation) Form {
	if stored != api.JSON || rep.Encoding == api.Protobuf {
		return nil
	}
	f := r.formOf(res.redactedOne(), stored, rep)
	if f == nil {
		return nil
	}
	return &redacted{Form: f}
}
