package edge

import "testing"

// TestBuffersShrink: the more is held, the less is given, and all comes back.
func TestBuffersShrink(t *testing.T) {
	var p Buffers
	one, other := &Account{}, &Account{}
	oneHolds, otherHolds := &Holder{buffers: &p}, &Holder{buffers: &p}
	oneHolds.account.Store(one)
	otherHolds.account.Store(other)
	sizes := map[int]int{}
	var all []*Buffer
	for range 1000 {
		b := oneHolds.Buffer(RecordsBuffer)
		sizes[cap(b.B)]++
		all = append(all, b)
	}
	large := (RecordsAllowed/RecordsBuffer + 1) * RecordsBuffer
	if n := sizes[RecordsBuffer]; n != RecordsAllowed/RecordsBuffer+1 {
		t.Errorf("%d of the largest", n)
	}
	if n := sizes[LargeBuffer]; n != (LargeAllowed-large)/LargeBuffer+1 {
		t.Errorf("%d large ones", n)
	}
	if oneHolds.largeBuffer(LargeBuffer) != nil || p.OverShare(one, 0) {
		t.Error("not the state between large and over")
	}
	for !p.OverShare(one, 0) {
		all = append(all, oneHolds.Buffer(1))
	}
	if held := p.held.Load(); held > BufferBudget*3/4+SmallBuffer {
		t.Errorf("%d bytes are held", held)
	}
	if p.OverShare(other, 0) || p.OverShare(other, 3*SmallBuffer) {
		t.Error("another pays for it")
	}
	for !p.OverShare(other, 0) {
		all = append(all, otherHolds.Buffer(1))
	}
	if held := p.held.Load(); held > BufferBudget {
		t.Errorf("%d bytes are held", held)
	}
	third := &Account{}
	p.Hold(one, BufferBudget)
	if p.OverShare(third, UserAllowed) || !p.OverShare(third, UserAllowed+1) {
		t.Error("who holds next to nothing pays for who holds it all")
	}
	p.Hold(one, -BufferBudget)
	for _, b := range all {
		p.Put(b)
	}
	if held := p.held.Load() + one.held.Load() + other.held.Load(); held != 0 {
		t.Errorf("%d bytes are left over", held)
	}
}
