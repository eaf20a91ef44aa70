package form

import (
	"encoding/binary"
	"hash/crc32"
	"time"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/watchmux"
)

// A watch that begins with what is there is compressed if the client accepts that
// and a list of the same objects would be, too. Its initial events are ready pieces
// (compress.go), which all watches of these objects share, and so are the events
// after them, each compressed once.
//
// In gzip that is one member. Every piece and every event ends at a byte with an
// empty stored block, behind which decoders give out all that they have; the end and
// the checksum, combined from those of the pieces, come when the watch ends.
//
// Considered and rejected: a member for each delivery, as kube-apiserver 1.37 sends
// them. A decoder may stop after the first one, as browsers' DecompressionStream and
// the one of kube-rs do. In zstd, which is for those who prefer it, each piece and
// each event is a frame.

const (
	// minCompressed is the size from which on an event is compressed. That costs
	// about 4 us and 5 ns for each byte (10 to 40 us for a pod of 6 KB) once for all
	// watches and makes it three to four times smaller; below, little is gained.
	minCompressed = 512
	// usualCompression is how many times smaller objects become, cautiously: pods of
	// 5 KB and more become eight to fifteen times smaller.
	usualCompression = 8
	// initialBytesAtOnce is how much of the initial events is written at a time.
	initialBytesAtOnce = 1 << 20
)

// flushBlock is an empty stored block: decoders give out what came before it.
const flushBlock = "\x00\x00\x00\xff\xff"

// compressedFrame is an event compressed, behind what the checksums of the watches
// that it is sent to take: its own, the shift past it, and its length.
type compressedFrame []byte

const compressedFrameHead = 12

func (f compressedFrame) data() []byte   { return f[compressedFrameHead:] }
func (f compressedFrame) crc() uint32    { return binary.LittleEndian.Uint32(f) }
func (f compressedFrame) shift() uint32  { return binary.LittleEndian.Uint32(f[4:]) }
func (f compressedFrame) length() uint32 { return binary.LittleEndian.Uint32(f[8:]) }

// appendFrame appends the frame of which texts are the parts; small ones are not
// compressed.
func (c *coder) appendFrame(b []byte, coding api.Compression, texts [][]byte) compressedFrame {
	start, n, crc := len(b), 0, uint32(0)
	for _, text := range texts {
		n += len(text)
		crc = crc32.Update(crc, crc32.IEEETable, text)
	}
	b = binary.LittleEndian.AppendUint32(b, crc)
	b = binary.LittleEndian.AppendUint32(b, c.crc.shift(int64(n)))
	b = binary.LittleEndian.AppendUint32(b, uint32(n))
	if coding == api.Zstd || n >= minCompressed {
		return compressedFrame(c.appendPiece(b, coding, texts...))[start:]
	}
	return compressedFrame(appendPlain(b, texts))[start:]
}

// appendPlain appends texts as they are in a deflate stream.
func appendPlain(b []byte, texts [][]byte) []byte {
	for _, text := range texts {
		b = appendStored(b, text, false)
	}
	return append(b, flushBlock...)
}

// count takes a compressed part of the stream into account.
func (w *Watch) count(f *Frames, crc, shift, length uint32) {
	f.sent.crc = w.r.coder.crc.combine(f.sent.crc, crc, shift)
	f.sent.raw += length
}

// CanCompress reports whether it is worth selecting the initial events to compress them:
// not in forms whose first event is different.
func (w *Watch) CanCompress(coding api.Compression) bool {
	s := w.form.sharing()
	return coding != api.Identity && s != alone && s != keptYoung
}

// Compress makes the watch a compressed one that begins with ADDED events of the objects
// of initial, which has no limit; size is about that of the objects. It does not where
// these are so few that a list of them is not compressed either, or so many that they
// would be compressed anew for each watch because there is no room for them. It comes
// before everything else.
func (w *Watch) Compress(initial *List, coding api.Compression, size int64) (ok bool, err error) {
	common := w.form.common()
	f := w.r.For(common.res, w.stored, common.rep) // one for these objects alone
	p := initial.place(common.res)
	objs, err := f.prepare(p, initial.Objects)
	if err != nil {
		return false, err
	}
	events := items{form: f, layout: layoutEvents, objs: objs, event: &Frames{}}
	most := w.r.derived.cache.MaxCost() * usualCompression
	// The events are looked at one by one where not even the whole objects are few.
	if !events.exceeds(api.CompressionThreshold) || size > most && events.exceeds(most) {
		return false, nil
	}
	z, err := w.r.compress(&events, p, coding)
	if err != nil {
		return false, err
	}
	w.coding, w.pieces = coding, z.pieces
	return true, nil
}

// HasPieces reports whether initial events of a compressed watch are still to be sent.
func (w *Watch) HasPieces() bool { return len(w.pieces) > 0 }

// Pieces makes f the next initial events of a compressed watch.
func (w *Watch) Pieces(f *Frames) {
	w.Begin(f)
	for n := 0; len(w.pieces) > 0 && n < initialBytesAtOnce; w.pieces = w.pieces[1:] {
		p := &w.pieces[0]
		f.pieces.List = append(f.pieces.List, p.data)
		w.count(f, p.crc, p.shift, uint32(p.raw))
		n += len(p.data)
	}
	if len(w.pieces) == 0 {
		w.pieces = nil
	}
}

// Release frees what is still to be sent.
func (w *Watch) Release() { w.pieces = nil }

// compressedEvent appends an event of a compressed watch.
func (w *Watch) compressedEvent(f *Frames, d watchmux.Delivery) error {
	kept, ok, err := d.KeptFrame(w.form.common().rep, uint8(w.coding), func(d watchmux.Delivery) ([]byte, error) {
		var own Frames
		if err := w.restamped(&own, d, time.Now()); err != nil {
			return nil, err
		}
		return w.r.coder.appendFrame(nil, w.coding, own.pieces.List), nil
	})
	if err != nil {
		return err
	}
	if !ok {
		// One who is far behind reads this: it is not compressed for each of them.
		first := len(f.pieces.List)
		if err := w.plainEvent(f, d); err != nil {
			return err
		}
		w.encodeFrom(f, first)
		return nil
	}
	frame := compressedFrame(kept)
	f.pieces.List = append(f.pieces.List, frame.data())
	w.count(f, frame.crc(), frame.shift(), frame.length())
	return nil
}

// encode makes all of f, which is this watch's own, a part of its body.
func (w *Watch) encode(f *Frames) {
	first := 0
	if f.sent.begun != w.sent.begun {
		first = 1 // the head of the body
	}
	w.encodeFrom(f, first)
}

// encodeFrom makes the frames from the first one on, which are this watch's own, a part
// of its compressed stream. It is not worth compressing them.
func (w *Watch) encodeFrom(f *Frames, first int) {
	texts := f.pieces.List[first:]
	if w.coding == api.Identity || len(texts) == 0 {
		return
	}
	start, n := len(f.pieces.Buf), 0
	if w.coding == api.Zstd {
		f.pieces.Buf = w.r.coder.appendPiece(f.pieces.Buf, w.coding, texts...)
	} else {
		for _, text := range texts {
			f.sent.crc = crc32.Update(f.sent.crc, crc32.IEEETable, text)
			n += len(text)
		}
		f.sent.raw += uint32(n)
		f.pieces.Buf = appendPlain(f.pieces.Buf, texts)
	}
	clear(texts)
	f.pieces.List = append(f.pieces.List[:first], f.pieces.Buf[start:len(f.pieces.Buf):len(f.pieces.Buf)])
}

// End makes f what closes the body: nothing where it is not compressed.
func (w *Watch) End(f *Frames) {
	if w.coding == api.Identity {
		f.reset()
		return
	}
	w.Begin(f)
	if w.coding != api.Gzip {
		return
	}
	f.pieces.Make(func(b []byte) []byte {
		b = appendStored(b, nil, true)
		b = binary.LittleEndian.AppendUint32(b, f.sent.crc)
		return binary.LittleEndian.AppendUint32(b, f.sent.raw)
	})
}
