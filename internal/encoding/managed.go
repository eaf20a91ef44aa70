package encoding

// An object without its managedFields consists of its own bytes except for a gap and, in encodings
// with lengths, another head before the metadata.

// split is the ManagedStart of managedFields that are not contiguous, during the scan.
const split = -1

// FoundManaged records managedFields found from start to end of Raw. Adjacent ranges are merged.
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

// EndManaged ends the search for managedFields. The result counts if whole is set and it is
// contiguous.
func (o *Encoded) EndManaged(whole bool) {
	if o.ManagedStart == split || !whole {
		o.ManagedStart, o.ManagedEnd = 0, 0
	}
}

// Managed returns how many bytes of Raw to remove to drop the managedFields.
func (o *Encoded) Managed() int { return int(o.ManagedEnd - o.ManagedStart) }

// DroppedMetaSize returns the length of the metadata without managedFields.
func (o *Encoded) DroppedMetaSize() int { return int(o.MetaEnd-o.MetaStart) - o.Managed() }

// DroppedSize returns the length of an object without its managedFields.
func DroppedSize(c Codec, o *Encoded) int {
	if o.ManagedEnd == 0 {
		return len(o.Raw)
	}
	return len(o.Raw) - o.Managed() - c.MetadataHeadSize(int(o.MetaEnd-o.MetaStart)) + c.MetadataHeadSize(o.DroppedMetaSize())
}

// MetaHead returns where the metadata's head (see AppendMetadataHead) begins.
func MetaHead(c Codec, o *Encoded) int {
	return int(o.MetaStart) - c.MetadataHeadSize(int(o.MetaEnd-o.MetaStart))
}

// Drop returns a copy of a scanned object without its managedFields. An object without any is
// returned as it is.
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
