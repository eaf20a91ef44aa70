package h2

// resetStream is a stream that was reset here, a moment ago.
type resetStream struct {
	id   uint32
	left int64 // of the window that the client had
}

// addResetLocked notes that a stream was reset here, with the window that it had.
func (h *conn) addResetLocked(id uint32, left int64) {
	if most := int(h.c.Options.MaxStreams); len(h.cutOff) < most {
		h.cutOff = append(h.cutOff, resetStream{id, left})
	} else {
		h.cutOff[h.cutOffs%most] = resetStream{id, left}
	}
	h.cutOffs++
}

// resetOfLocked finds a stream that was reset here.
func (h *conn) resetOfLocked(id uint32) *resetStream {
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
func (c *resetStream) take(n int64, end bool) (cost int) {
	if c.left -= n; c.left < 0 {
		return resetCost
	}
	if end {
		c.left = 0
	}
	if n < updateBytes {
		return frameCost
	}
	return 0
}
