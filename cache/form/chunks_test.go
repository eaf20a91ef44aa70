package form

import "testing"

// TestBuffersShrink: bodies that wait for their clients hold little each once many do.
func TestBuffersShrink(t *testing.T) {
	b := newBuffers()
	var all []*[]byte
	for range chunkBudget / chunkSize {
		all = append(all, b.get())
	}
	large := *all[len(all)-1]
	small := b.get()
	if cap(large) != chunkSize || cap(*small) != smallChunk {
		t.Errorf("the last large one has %d bytes, the next %d", cap(large), cap(*small))
	}
	for _, buf := range append(all, small) {
		b.put(buf)
	}
	if held := b.held.Load(); held != 0 {
		t.Errorf("%d bytes are left over", held)
	}
	if buf := b.get(); cap(*buf) != chunkSize {
		t.Errorf("then %d bytes", cap(*buf))
	}
}
