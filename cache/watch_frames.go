package cache

import (
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeweir/kubeweir/cache/table"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/watchmux"
)

// The frames of a watch are put together from pieces: for objects as they are,
// the upstream's own bytes between a head and a tail, so that nothing is copied
// or kept; for transforms, bytes made once per event and shared.

// tableRow is a rendered row, see cache/table.
type tableRow = *table.Row

// frameAge is how old an event may be for its rendered Table to be shared: the
// relative times in it must be right when it is delivered.
const frameAge = int64(time.Second)

var (
	frameTail    = []byte("}\n")
	protobufTail = []byte(object.ProtobufTail)
	partialTail  = []byte("}}\n") // closes the object around the metadata as well
)

// frameHeads and partialHeads are what comes before an object's own bytes.
var frameHeads = [...][]byte{
	api.Added:    []byte(`{"type":"ADDED","object":`),
	api.Modified: []byte(`{"type":"MODIFIED","object":`),
	api.Deleted:  []byte(`{"type":"DELETED","object":`),
	api.Bookmark: []byte(`{"type":"BOOKMARK","object":`),
	api.Error:    []byte(`{"type":"ERROR","object":`),
}

var partialHeads = [...][]byte{
	api.Added:    []byte(`{"type":"ADDED","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":`),
	api.Modified: []byte(`{"type":"MODIFIED","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":`),
	api.Deleted:  []byte(`{"type":"DELETED","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":`),
	api.Bookmark: []byte(`{"type":"BOOKMARK","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":`),
}

// appendDelivery appends the frame of an event.
func (s *watchStream) appendDelivery(sc *scratch, d watchmux.Delivery) error {
	now := time.Now()
	isTable := s.req.Rep.Transform == api.Table
	switch {
	case d.Object.RV == d.RV && s.sharesBytes():
		return s.appendObject(sc, d.Type, d.Object, now)
	case isTable && (s.withColumns() || s.c.Mux().Age(d.Event) > frameAge):
		// Column definitions go to each watch once, and relative times must be
		// right when they are sent: such a frame is nobody else's.
		return s.appendRestamped(sc, d, now)
	}
	frame, err := d.Frame(s.req.Rep, 0, func(d watchmux.Delivery) ([]byte, error) {
		var own scratch
		if err := s.appendRestamped(&own, d, now); err != nil {
			return nil, err
		}
		return join(own.frames), nil
	})
	if err != nil {
		return err
	}
	sc.frames = append(sc.frames, frame)
	return nil
}

// appendRestamped appends a delivery whose object may be the state before the
// event: an object that leaves the selector is sent as it last matched, with the
// version of the change.
func (s *watchStream) appendRestamped(sc *scratch, d watchmux.Delivery, now time.Time) error {
	o, err := d.Object.AtRV(s.c.encoding, d.RV)
	if err != nil {
		return err
	}
	return s.appendObject(sc, d.Type, o, now)
}

// sharesBytes reports whether frames are made of the object's own bytes.
func (s *watchStream) sharesBytes() bool {
	rep := s.req.Rep
	return rep.Encoding == api.JSON &&
		(rep.Transform == api.NoTransform || rep.Transform == api.PartialMetadata && s.c.resource.ownMetadata())
}

func join(frames [][]byte) []byte {
	n := 0
	for _, f := range frames {
		n += len(f)
	}
	joined := make([]byte, 0, n)
	for _, f := range frames {
		joined = append(joined, f...)
	}
	return joined
}

// appendObject appends the frame of an event with object o.
func (s *watchStream) appendObject(sc *scratch, t api.EventType, o *object.Object, now time.Time) error {
	rep := s.req.Rep
	switch {
	case rep.Transform == api.Table:
		return s.appendTable(sc, t, o, now)
	case rep.Transform == api.PartialMetadata:
		return s.appendPartial(sc, t, o)
	case rep.Encoding == api.Protobuf:
		res := s.c.resource
		sc.grow(func(b []byte) []byte {
			return object.AppendProtobufFrameHead(b, t, res.GroupVersion().String(), res.Kind, len(o.Raw))
		})
		sc.frames = append(sc.frames, o.Raw, protobufTail)
		return nil
	}
	sc.frames = append(sc.frames, frameHeads[t], o.Raw, frameTail)
	return nil
}

// appendPartial appends an event that carries the object's metadata alone. A
// protobuf client of a custom resource is served from the JSON collection.
func (s *watchStream) appendPartial(sc *scratch, t api.EventType, o *object.Object) error {
	metadata, err := s.owner.renderer.objectMetadata(s.c, s.req.Rep.Encoding, o)
	if err != nil {
		return err
	}
	if s.req.Rep.Encoding == api.JSON {
		sc.frames = append(sc.frames, partialHeads[t], metadata, partialTail)
		return nil
	}
	sc.grow(func(b []byte) []byte {
		return object.AppendProtobufFrame(b, t, object.PartialAPIVersion, object.PartialKind, object.AppendPartialProtobuf(nil, metadata))
	})
	return nil
}

// appendTable appends an event whose object is a Table of one row.
func (s *watchStream) appendTable(sc *scratch, t api.EventType, o *object.Object, now time.Time) error {
	row, err := s.owner.renderer.tableRow(s.c.resource, o)
	if err != nil {
		return err
	}
	single := table.Single{ResourceVersion: strconv.FormatUint(o.RV, 10), Row: row}
	switch s.req.Rep.IncludeObject {
	case api.IncludeMetadata:
		metadata, err := s.owner.renderer.objectMetadata(s.c, api.JSON, o)
		if err != nil {
			return err
		}
		single.Object = table.MetadataObject(metadata)
	case api.IncludeObjectFull:
		single.Object = table.FullObject(o.Raw)
	}
	s.appendSingle(sc, t, &single, now)
	return nil
}

func (s *watchStream) appendSingle(sc *scratch, t api.EventType, single *table.Single, now time.Time) {
	if s.withColumns() {
		single.Columns = s.c.resource.Printer.Columns()
		s.columns = true
	}
	sc.grow(func(b []byte) []byte {
		b = append(b, frameHeads[t]...)
		b = single.Append(b, now)
		return append(b, frameTail...)
	})
}

// withColumns reports whether the next Table event carries column definitions:
// the first one does.
func (s *watchStream) withColumns() bool {
	return !s.columns || s.c.resource.Printer.Traits().ColumnsInEveryEvent
}

// grow appends one frame that append makes in the scratch buffer.
func (sc *scratch) grow(append_ func([]byte) []byte) {
	start := len(sc.buf)
	sc.buf = append_(sc.buf)
	sc.frames = append(sc.frames, sc.buf[start:len(sc.buf):len(sc.buf)])
}

// appendError appends the ERROR event of err.
func (s *watchStream) appendError(sc *scratch, err *apierrors.StatusError) {
	message := s.openMessage(sc)
	defer s.closeMessage(sc, message)
	status := api.StatusOf(err)
	if s.req.Rep.Encoding == api.Protobuf {
		apiVersion, kind, raw, err := object.ParseProtobufObject(api.EncodeStatus(status, api.StatusProtobuf))
		if err == nil { // it was made a line above
			sc.grow(func(b []byte) []byte { return object.AppendProtobufFrame(b, api.Error, apiVersion, kind, raw) })
		}
		return
	}
	body := api.EncodeStatus(status, api.StatusJSON)
	sc.frames = append(sc.frames, frameHeads[api.Error], body[:len(body)-1], frameTail)
}
