package watchmux

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/kubeweir/kubeweir/api"
)

// frameCache keeps the frames of one event: a list that only grows, until the event leaves the ring
// or the frame budget and everything is dropped. The zero value is ready to use and not counted.
type frameCache struct {
	head atomic.Pointer[frame]
	// budget is that of the ring. It is set before the event is shared.
	budget *frameBudget
}

// frameBudget bounds the bytes of all frames of a ring. New frames are kept while less than max is
// used; Mux.trim makes room by retiring the oldest ones.
type frameBudget struct {
	used atomic.Int64
	max  int64
}

func (b *frameBudget) full() bool { return b != nil && b.used.Load() >= b.max }

type frameKey struct {
	rep     api.Representation
	kind    api.EventType
	variant uint8
}

// frame is one encoded form, made under once, or the reason why there is none: a form that cannot
// be made for one reader is an error for all.
type frame struct {
	key   frameKey
	next  *frame
	once  sync.Once
	bytes []byte
	err   error
	// counted is how much the budget's use includes for this frame.
	counted atomic.Int64
}

// retired is the head of a list that accepts no frames any more. It is only compared with, and
// never changed.
var retired = &frame{}

// errNoFrame is the error of a frame whose encoder panicked.
var errNoFrame = errors.New("the event could not be encoded")

func (c *frameCache) get(key frameKey, d Delivery, encode func(Delivery) ([]byte, error)) ([]byte, error) {
	if b, ok, err := c.getKept(key, d, encode); ok {
		return b, err
	}
	return encode(d)
}

// getKept makes only frames that are kept; otherwise ok is false.
func (c *frameCache) getKept(key frameKey, d Delivery, encode func(Delivery) ([]byte, error)) (b []byte, ok bool, err error) {
	f := c.entry(key)
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
