package form

import (
	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/object"
)

// For returns the form that renders objects stored in one encoding as rep, or nil if there is none.
func (r *Renderer) For(res *Resource, stored api.Encoding, rep api.Representation) Form {
	f := r.formOf(res, stored, rep)
	switch {
	case !rep.Redacted || f == nil:
		return f
	case stored != api.JSON || rep.Encoding == api.Protobuf:
		return nil
	}
	return &redacted{Form: f}
}

// formOf is For without redaction.
func (r *Renderer) formOf(res *Resource, stored api.Encoding, rep api.Representation) Form {
	common := base{r: r, res: res, rep: rep, enc: framings[rep.Encoding], ownMetadata: res.ownMetadata()}
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
			f := &plain{base: common, around: common.enc.Around()}
			if rep.DropManagedFields {
				f.drop = object.Codec(stored)
			}
			return f
		}
	}
	return nil
}
