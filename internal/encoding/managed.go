package encoding

// An object without its managedFields is its own bytes but for a gap, and in encodings
// with lengths another head before the metadata.

// split is ManagedStart for managedFields in several places, while an object is scanned.
const split = -1

// FoundManaged takes managedFields found from start to end of Raw. Runs that meet are one.
func (o *Encoded) FoundManaged(start, end int) {
	switch {
	case o.ManagedEnd == 0:
		o.ManagedStart, o.ManagedEnd = int32(start), int32(end)
	case o.ManagedStart != split && int(o.ManagedEnd) == start:
		o.ManagedEnd = int32(end)
	default:
		o.ManagedStart = split
	}
}

// EndManaged ends the search for managedFields. What was found counts if whole is set and
// it was in one place.
func (o *Encoded) EndManaged(whole bool) {
	if o.ManagedStart == split || !whole {
		o.ManagedStart, o.ManagedEnd = 0, 0
	}
}

// Managed is how many bytes of Raw an object without its managedFields has nothing of.
func (o *Encoded) Managed() int { return int(o.ManagedEnd - o.ManagedStart) }

// DroppedMetaSize is the length of the metadata without managedFields.
func (o *Encoded) DroppedMetaSize() int { return int(o.MetaEnd-o.MetaStart) - o.Managed() }

// DroppedSize is the length of an object without its managedFields.
func DroppedSize(c Codec, o *Encoded) int {
	if o.ManagedEnd == 0 {
		return len(o.Raw)
	}
	return len(o.Raw) - o.Managed() - c.MetadataHeadSize(int(o.MetaEnd-o.MetaStart)) + c.MetadataHeadSize(o.DroppedMetaSize())
}

// MetaHead is where the head of the metadata begins that AppendMetadataHead makes.
func MetaHead(c Codec, o *Encoded) int {
	return int(o.MetaStart) - c.MetadataHeadSize(int(o.MetaEnd-o.MetaStart))
}

// Drop returns a copy of an object that was scanned without its managedFields; one that
// has none is returned as it is.
func Drop(c Codec, o Encoded) Encoded {
	if o.ManagedEnd == 0 {
		return o
	}
	raw := append(make([]byte, 0, DroppedSize(c, &o)), o.Raw[:MetaHead(c, &o)]...)
	raw = c.AppendMetadataHead(raw, o.DroppedMetaSize())
	start := len(raw)
	raw = append(raw, o.Raw[o.MetaStart:o.ManagedStart]...)
	raw = append(raw, o.Raw[o.ManagedEnd:]...)
	return Encoded{Raw: raw, MetaStart: int32(start), MetaEnd: int32(start + o.DroppedMetaSize())}
}
