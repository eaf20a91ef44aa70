package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/watchmux/watchtest"
)

// A stream is one watch response. A goroutine reads it until it ends. Closing the stream or the end
// of its context ends it.
type stream struct {
	request request
	cancel  context.CancelFunc
	// done is closed when the response has ended; ended is its error, nil for a clean end.
	done  chan struct{}
	ended error

	mu struct {
		sync.Mutex
		watch  watchtest.Watch
		status *metav1.Status // of the ERROR event
	}
}

// watch opens a watch of the events after a version. initial means that it starts with the current
// state. If the status is not 200, watch returns the response instead of a stream.
func (c *client) watch(ctx context.Context, r request, from uint64, initial bool) (*stream, response, error) {
	ctx, cancel := context.WithCancel(ctx)
	resp, err := c.open(ctx, r)
	if err != nil {
		cancel()
		return nil, response{}, err
	}
	if resp.StatusCode != http.StatusOK {
		defer cancel()
		defer func() { _ = resp.Body.Close() }()
		b, err := io.ReadAll(resp.Body)
		return nil, response{status: resp.StatusCode, header: resp.Header, body: string(b)}, err
	}
	s := &stream{request: r, cancel: cancel, done: make(chan struct{})}
	s.mu.watch = watchtest.Watch{From: from, Initial: initial}
	go s.read(ctx, resp)
	return s, response{status: http.StatusOK, header: resp.Header}, nil
}

// mustWatch is watch, but fails the test if it is rejected. The stream is closed at the end of the
// test.
func (c *client) mustWatch(ctx context.Context, t *testing.T, r request, from uint64, initial bool) *stream {
	t.Helper()
	s, rejected, err := c.watch(ctx, r, from, initial)
	must(t, err)
	if s == nil {
		t.Fatalf("%s: %s: %s", c.name, r, rejected)
	}
	t.Cleanup(s.close)
	return s
}

// close ends the stream and waits for its reader.
func (s *stream) close() {
	s.cancel()
	<-s.done
}

// await waits for the end of the stream.
func (s *stream) await(within time.Duration) error {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-s.done:
		return nil
	case <-timer.C:
		return fmt.Errorf("%s: still open after %s", s.request, within)
	}
}

// open reports whether the stream is still open.
func (s *stream) open() bool {
	select {
	case <-s.done:
		return false
	default:
		return true
	}
}

// seen returns the events received so far.
func (s *stream) seen() watchtest.Watch {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.mu.watch
	w.Events = w.Events[:len(w.Events):len(w.Events)]
	return w
}

// status returns the Status of the ERROR event, or nil.
func (s *stream) status() *metav1.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.status
}

// has reports whether an event of this type and key was received.
func (s *stream) has(typ api.EventType, key string) bool {
	for _, e := range s.seen().Events {
		if e.Type == typ && e.Key == key {
			return true
		}
	}
	return false
}

func (s *stream) read(ctx context.Context, resp *http.Response) {
	defer close(s.done)
	defer s.cancel()
	defer func() { _ = resp.Body.Close() }()
	in := bufio.NewReader(resp.Body)
	next := nextJSON
	if strings.HasPrefix(resp.Header.Get("Content-Type"), typeProto) {
		next = nextProto
	}
	for {
		e, status, err := next(in)
		if errors.Is(err, io.EOF) || ctx.Err() != nil {
			return
		}
		if err != nil {
			s.ended = err
			return
		}
		s.mu.Lock()
		if status != nil {
			s.mu.status = status
		} else {
			s.mu.watch.Events = append(s.mu.watch.Events, e)
		}
		s.mu.Unlock()
	}
}

// objectHead is the decoded part of an event's object: an object, a Table with one row, or a
// Status.
type objectHead struct {
	Kind     string            `json:"kind"`
	Metadata metav1.ObjectMeta `json:"metadata"`
	Rows     []struct {
		Object struct {
			Metadata metav1.ObjectMeta `json:"metadata"`
		} `json:"object"`
	} `json:"rows"`
}

func nextJSON(in *bufio.Reader) (e watchtest.WireEvent, status *metav1.Status, err error) {
	line, err := in.ReadBytes('\n')
	if err != nil {
		if len(line) > 0 {
			err = fmt.Errorf("the last event is truncated: %.200q (%v)", line, err)
		}
		return e, nil, err
	}
	var event struct {
		Type   string          `json:"type"`
		Object json.RawMessage `json:"object"`
	}
	if err := json.Unmarshal(line, &event); err != nil {
		return e, nil, fmt.Errorf("not a watch event: %.200q: %w", line, err)
	}
	if api.ParseEventType(event.Type) == api.Error {
		status = &metav1.Status{}
		return e, status, json.Unmarshal(event.Object, status)
	}
	var head objectHead
	if err := json.Unmarshal(event.Object, &head); err != nil {
		return e, nil, fmt.Errorf("object of the event: %w", err)
	}
	meta := head.Metadata
	if head.Kind == "Table" {
		if len(head.Rows) != 1 {
			return e, nil, fmt.Errorf("Table with %d rows", len(head.Rows))
		}
		meta = head.Rows[0].Object.Metadata
	}
	e, err = wireEvent(event.Type, meta)
	return e, nil, err
}

// protoMagic is the prefix of every protobuf object except watch events.
var protoMagic = []byte("k8s\x00")

func nextProto(in *bufio.Reader) (e watchtest.WireEvent, status *metav1.Status, err error) {
	var length [4]byte
	if n, err := io.ReadFull(in, length[:]); err != nil {
		if n > 0 {
			err = fmt.Errorf("the last event is truncated: %v", err)
		}
		return e, nil, err
	}
	frame := make([]byte, binary.BigEndian.Uint32(length[:]))
	if _, err := io.ReadFull(in, frame); err != nil {
		return e, nil, fmt.Errorf("the last event is truncated: %v", err)
	}
	var event metav1.WatchEvent
	if err := event.Unmarshal(frame); err != nil {
		return e, nil, fmt.Errorf("not a watch event: %w", err)
	}
	raw, ok := bytes.CutPrefix(event.Object.Raw, protoMagic)
	if !ok {
		return e, nil, fmt.Errorf("object of the event starts with %.8q", event.Object.Raw)
	}
	var unknown runtime.Unknown
	if err := unknown.Unmarshal(raw); err != nil {
		return e, nil, fmt.Errorf("object of the event: %w", err)
	}
	if api.ParseEventType(event.Type) == api.Error {
		status = &metav1.Status{}
		return e, status, status.Unmarshal(unknown.Raw)
	}
	// Field 1 of every object is its metadata.
	var object metav1.PartialObjectMetadata
	if err := object.Unmarshal(unknown.Raw); err != nil {
		return e, nil, fmt.Errorf("object of the event: %w", err)
	}
	e, err = wireEvent(event.Type, object.ObjectMeta)
	return e, nil, err
}

func wireEvent(typ string, meta metav1.ObjectMeta) (watchtest.WireEvent, error) {
	e := watchtest.WireEvent{Type: api.ParseEventType(typ), End: meta.Annotations[metav1.InitialEventsAnnotationKey] == "true"}
	if e.Type == 0 {
		return e, fmt.Errorf("unexpected event of type %q", typ)
	}
	if e.Type != api.Bookmark {
		e.Key = objectKey(meta.Namespace, meta.Name)
	}
	var err error
	e.RV, err = api.ParseResourceVersion(meta.ResourceVersion)
	return e, err
}

func objectKey(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}
