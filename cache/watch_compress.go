package cache

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"time"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
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
	// protobufHeadRoom is more than the head of a protobuf event takes.
	protobufHeadRoom = 512
	// initialBytesAtOnce is how much of the initial events is written at a time.
	initialBytesAtOnce = 1 << 20
)

// flushBlock is an empty stored block: decoders give out what came before it.
const flushBlock = "\x00\x00\x00\xff\xff"

// compressedStream is what the end of a compressed watch must say of all before it.
type compressedStream struct {
	begun bool // the head was sent
	crc   uint32
	raw   uint32 // length before compression, modulo 2^32
}

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

// begin prepares sc for what the stream sends next.
func (s *watchStream) begin(sc *scratch) {
	sc.frames, sc.buf, sc.sent = sc.frames[:0], sc.buf[:0], s.sent
	if s.coding == api.Gzip && !sc.sent.begun {
		sc.sent.begun = true
		sc.grow(func(b []byte) []byte { return append(b, gzipHeader...) })
	}
}

// count takes a compressed part of the stream into account.
func (s *watchStream) count(sc *scratch, crc, shift, length uint32) {
	sc.sent.crc = s.owner.coder.crc.combine(sc.sent.crc, crc, shift)
	sc.sent.raw += length
}

// deliverPieces sends the initial events of a compressed watch.
func (s *watchStream) deliverPieces(sc *scratch) (ok bool) {
	for len(s.pieces) > 0 {
		if s.finishRevoked(sc) {
			return false
		}
		s.begin(sc)
		for n := 0; len(s.pieces) > 0 && n < initialBytesAtOnce; s.pieces = s.pieces[1:] {
			p := &s.pieces[0]
			sc.frames = append(sc.frames, p.data)
			s.count(sc, p.crc, p.shift, uint32(p.raw))
			n += len(p.data)
		}
		if s.leaving.Load() || !s.write(sc) {
			return false
		}
	}
	s.pieces = nil
	return true
}

// appendCompressed is appendDelivery of a compressed watch.
func (s *watchStream) appendCompressed(sc *scratch, d watchmux.Delivery) error {
	frame, ok, err := d.KeptFrame(s.req.Rep, uint8(s.coding), func(d watchmux.Delivery) ([]byte, error) {
		var own scratch
		if err := s.appendRestamped(&own, d, time.Now()); err != nil {
			return nil, err
		}
		return s.owner.coder.appendFrame(nil, s.coding, own.frames), nil
	})
	if err != nil {
		return err
	}
	if !ok {
		// One who is far behind reads this: it is not compressed for each of them.
		first := len(sc.frames)
		if err := s.appendDelivery(sc, d); err != nil {
			return err
		}
		s.encode(sc, first)
		return nil
	}
	f := compressedFrame(frame)
	sc.frames = append(sc.frames, f.data())
	s.count(sc, f.crc(), f.shift(), f.length())
	return nil
}

// encode makes the frames from the given one on, which are this watch's own, a part
// of its compressed stream. It is not worth compressing them.
func (s *watchStream) encode(sc *scratch, first int) {
	texts := sc.frames[first:]
	if s.coding == api.Identity || len(texts) == 0 {
		return
	}
	start, n := len(sc.buf), 0
	if s.coding == api.Zstd {
		sc.buf = s.owner.coder.appendPiece(sc.buf, s.coding, texts...)
	} else {
		for _, text := range texts {
			sc.sent.crc = crc32.Update(sc.sent.crc, crc32.IEEETable, text)
			n += len(text)
		}
		sc.sent.raw += uint32(n)
		sc.buf = appendPlain(sc.buf, texts)
	}
	clear(texts)
	sc.frames = append(sc.frames[:first], sc.buf[start:len(sc.buf):len(sc.buf)])
}

// appendEnd appends what closes a compressed stream.
func (s *watchStream) appendEnd(sc *scratch) {
	if s.coding != api.Gzip {
		return
	}
	sc.grow(func(b []byte) []byte {
		b = appendStored(b, nil, true)
		b = binary.LittleEndian.AppendUint32(b, sc.sent.crc)
		return binary.LittleEndian.AppendUint32(b, sc.sent.raw)
	})
}

// compressInitial prepares the initial events of a watch in the coding that its
// client accepts, where that pays. It is before Start.
func (s *watchStream) compressInitial(ctx context.Context) {
	coding := s.req.Compression
	if coding == api.Identity || s.initial == nil {
		return
	}
	sel, ok := s.selectInitial(ctx)
	if !ok {
		return
	}
	items, err := s.owner.renderer.initialEvents(s.c, s.req.Rep, coding, sel)
	if err != nil || items == nil {
		// Too little, or what cannot be rendered: the watch says so when it is there.
		if sel.picked {
			s.picked = sel.objs
		}
		return
	}
	s.coding, s.pieces, s.initial = coding, items.pieces, nil
}

// selectInitial selects the initial objects. ok is false when the client has left, and
// where they are not compressed: Tables, whose first event is different, and what is
// selected by fields (the pods of a node, one Secret), which hardly two clients share.
func (s *watchStream) selectInitial(ctx context.Context) (sel *selection, ok bool) {
	f := s.req.Filter
	if s.req.Rep.Transform == api.Table || f != nil && f.Fields != nil && !f.Fields.Empty() {
		return nil, false
	}
	sel = &selection{view: s.initial, rv: s.initial.RV(), namespace: s.initialNamespace()}
	if !f.Selective() {
		sel.n = s.initial.Count(sel.namespace)
		return sel, true
	}
	sel.picked, sel.variant = true, variantOf(f)
	looking := search{ctx: ctx}
	s.initial.Ascend(sel.namespace, "", func(o *object.Object) bool {
		if looking.abandoned() {
			return false
		}
		if f.Matches(o) {
			sel.objs = append(sel.objs, o)
		}
		return true
	})
	return sel, looking.ctx.Err() == nil
}

// initialEvents are the ADDED events of a selection without order or limit,
// compressed; nil when they are so few that a list of them is not, or so many that
// they would be compressed anew for each watch because there is no room for them.
func (r *Reader) initialEvents(c *Collection, rep api.Representation, coding api.Compression, sel *selection) (*compressed, error) {
	p := place{
		slotOf: slot{resource: c.Resource(), namespace: sel.namespace, key: sel.variant},
		id:     sel.view.Content(),
	}
	f, err := r.newForm(c, rep, sel, &p)
	if err != nil {
		return nil, err
	}
	f.initial = true
	most := r.derived.cache.MaxCost() * usualCompression
	// The events are looked at one by one where not even the whole objects are few.
	if !f.exceeds(sel, api.CompressionThreshold) || sel.bytes() > most && f.exceeds(sel, most) {
		return nil, nil
	}
	return r.compress(f, p, coding, sel)
}

// bytes is about the size of the objects.
func (s *selection) bytes() int64 {
	all := max(1, s.view.Len())
	return s.view.Bytes() / int64(all) * int64(s.len())
}

// exceeds reports whether the objects of sel, as f writes them, are more than threshold
// bytes.
func (f *form) exceeds(sel *selection, threshold int64) bool {
	i, total := 0, int64(0)
	more := func(o *object.Object) bool {
		n, _ := f.size(i, o)
		i, total = i+1, total+int64(n)
		return total <= threshold && i < sel.len()
	}
	if !sel.picked {
		sel.view.Ascend(sel.namespace, "", more)
		return total > threshold
	}
	for _, o := range sel.objs {
		if !more(o) {
			break
		}
	}
	return total > threshold
}

// writeInitial writes the ADDED event of object i.
func (f *form) writeInitial(w *chunks, i int, o *object.Object) {
	switch f.kind {
	case formPartial, formPartialTyped:
		w.write(partialHeads[api.Added])
		w.write(f.metadataOf(i, o))
		w.write(partialTail)
	case formProtobuf:
		w.append(protobufHeadRoom, func(b []byte) []byte {
			return object.AppendProtobufFrameHead(b, api.Added, f.res.GroupVersion().String(), f.res.Kind, len(o.Raw))
		})
		w.write(o.Raw)
		w.write(protobufTail)
	case formPartialProtobuf:
		metadata := object.AppendPartialProtobuf(nil, f.metadataOf(i, o))
		w.append(len(metadata), func(b []byte) []byte {
			return object.AppendProtobufFrame(b, api.Added, object.PartialAPIVersion, object.PartialKind, metadata)
		})
	default:
		w.write(frameHeads[api.Added])
		w.write(o.Raw)
		w.write(frameTail)
	}
}
