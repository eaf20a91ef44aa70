package watchmux

import "fmt"

// CheckHolds returns what is inconsistent about the holds, or "".
func CheckHolds(m *Mux) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.mu.log
	if l == nil {
		return ""
	}
	var readers [maxHolds]int
	for w := range l.readers {
		if w.held != 0 {
			readers[w.held.first()]++
		}
	}
	bytes := int64(0)
	for i := range l.entries {
		bytes += l.entries[i].cost
		for s := l.entries[i].held; s != 0; s &= s - 1 {
			if h := l.holds[s.first()]; h.readers == 0 || l.entries[i].seq >= h.end {
				return fmt.Sprintf("event %d is kept for hold %d: %+v", l.entries[i].seq, s.first(), h)
			}
		}
	}
	for i, h := range l.holds {
		if h.readers != readers[i] || h.readers > 0 != (l.held>>i&1 == 1) {
			return fmt.Sprintf("hold %d: %+v, held %b; readers %d", i, h, l.held, readers[i])
		}
	}
	if bytes != l.bytes {
		return fmt.Sprintf("%d bytes, counted %d", bytes, l.bytes)
	}
	return ""
}
