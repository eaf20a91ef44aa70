package h2

// cutOff is a stream that was reset here, a moment ago.
type cutOff struct {
	id   uint32
	left int64 // of the window that the client had
}

// cutOffLocked notes that a stream was reset here, with the window that it had.
func (h *conn) cutOffLocked(id uint32, left int64) {
	if most := int(h.c.Options.MaxStreams); len(h.cutOff) < most {
		h.cutOff = append(h.cutOff, cutOff{id, left})
	} else {
		h.cutOff[h.cutOffs%most] = cutOff{id, left}
	}
	h.cutOffs++
}

// cutOffOfLocked finds a stream that was reset here.
func (h *conn) cutOffOfLocked(id uint32) *cutOff {
	for i := range h.cutOff {
		if h.cutOff[i].id == id {
			return &h.cutOff[i]
		}
	}
	return nil
}

// take says what DATA of n bytes costs that comes late: nothing, or that of a small frame,
// for what the client may have sent before it knew of the reset. That is no more than its
// window, and nothing behind its end.
func (c *cutOff) take(n int64, end bool) (cost int) {
	if c.left -= n; c.left < 0 {
		return effortReset
	}
	if end {
		c.left = 0
	}
	if n < updateBytes {
		return effortFrame
	}
	return 0
}
