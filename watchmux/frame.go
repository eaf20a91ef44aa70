package watchmux

import (
	"errors"

	"github.com/kubeweir/kubeweir/internal/api"
)

func (b *frameBudget) full() bool { return b != nil && b.used.Load() >= b.max }

// retired is the head of a list that accepts no frames any more. It is only compared with, and
// never changed.
var retired = &frame{}

// errNoFrame is the error of a frame whose encoder panicked.
var errNoFrame = errors.New("the event could not be encoded")

// Frame returns the wire frame of the delivery in a representation. The first caller makes it with
// encode. All others, and any number at once, share the bytes, which must not be changed, or the
// error. variant (0 to 255, chosen by the caller) distinguishes frames that differ in something
// other than representation and type. Frames of events that have left the frame budget are encoded
// at each call.
func (d Delivery) Frame(rep api.Representation, variant uint8, encode func(Delivery) ([]byte, error)) ([]byte, error) {
	if b, ok, err := d.CachedFrame(rep, variant, encode); ok {
		return b, err
	}
	return encode(d)
}

// CachedFrame is Frame for frames that are too expensive to be encoded at each call: if the frame
// would not be kept, nothing is encoded and ok is false.
func (d Delivery) CachedFrame(rep api.Representation, variant uint8, encode func(Delivery) ([]byte, error)) (frame []byte, ok bool, err error) {
	c := &d.Event.frames
	f := c.entry(frameKey{rep, d.Type, variant})
	if f == nil {
		return nil, false, nil
	}
	f.once.Do(func() {
		f.err = errNoFrame
		f.bytes, f.err = encode(d)
		if c.budget == nil {
			return
		}
		c.budget.used.Add(int64(len(f.bytes)))
		f.counted.Store(int64(len(f.bytes)))
		if c.head.Load() == retired { // retired meanwhile, perhaps before the frame was counted
			c.discount(f)
		}
	})
	return f.bytes, true, f.err
}

// entry finds or makes the entry for key. It returns nil if the frame is not to be kept.
func (c *frameCache) entry(key frameKey) *frame {
	var fresh *frame
	for {
		head := c.head.Load()
		if head == retired {
			return nil
		}
		for f := head; f != nil; f = f.next {
			if f.key == key {
				return f
			}
		}
		if c.budget.full() {
			return nil
		}
		if fresh == nil {
			fresh = &frame{key: key}
		}
		fresh.next = head
		if c.head.CompareAndSwap(head, fresh) {
			return fresh
		}
	}
}

// retire drops the frames. Later ones are not kept.
func (c *frameCache) retire() {
	for f := c.head.Swap(retired); f != nil; f = f.next {
		c.discount(f)
	}
}

// discount removes a frame from the budget's use. Only the first call has an effect.
func (c *frameCache) discount(f *frame) {
	if n := f.counted.Swap(0); n > 0 {
		c.budget.used.Add(-n)
	}
}
