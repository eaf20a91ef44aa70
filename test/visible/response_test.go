package visible

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/websocket"
	"github.com/klauspost/compress/zstd"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// A response has what the tests look at.
type response struct {
	status    int
	warning   string
	keys      []string // in the order of the response
	next      string   // the token of the next page
	remaining *int64
	count     int    // the total of a query with countBy, -1 without
	raw       []byte // the whole body, decompressed
}

func decompressed(resp *http.Response) (io.Reader, error) {
	switch coding := resp.Header.Get("Content-Encoding"); coding {
	case "":
		return resp.Body, nil
	case "gzip":
		return gzip.NewReader(resp.Body)
	case "zstd":
		return zstd.NewReader(resp.Body, zstd.WithDecoderConcurrency(1))
	default:
		return nil, fmt.Errorf("Content-Encoding %q", coding)
	}
}

// types decodes protobuf.
var types = func() serializer.CodecFactory {
	s := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(s), metav1.AddMetaToScheme(s)); err != nil {
		panic(err)
	}
	return serializer.NewCodecFactory(s)
}()

// decodeList decodes a list in any form.
func decodeList(contentType string, body []byte) (a response, err error) {
	a.count = -1
	if strings.HasPrefix(contentType, "application/vnd.kubernetes.protobuf") {
		object, _, err := types.UniversalDeserializer().Decode(body, nil, nil)
		if err != nil {
			return a, err
		}
		list, err := meta.ListAccessor(object)
		if err != nil {
			return a, err
		}
		a.next, a.remaining = list.GetContinue(), list.GetRemainingItemCount()
		return a, meta.EachListItem(object, func(item runtime.Object) error {
			one, err := meta.Accessor(item)
			if err == nil {
				a.keys = append(a.keys, keyOf(one.GetNamespace(), one.GetName()))
			}
			return err
		})
	}
	list, err := decodeMap(contentType, body)
	if err != nil {
		return a, err
	}
	var m struct {
		Continue           string `json:"continue"`
		RemainingItemCount *int64 `json:"remainingItemCount"`
		Kubeweir           *struct {
			Count int `json:"count"`
		} `json:"kubeweir"`
	}
	text, err := json.Marshal(list["metadata"])
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		return a, err
	}
	a.next, a.remaining = m.Continue, m.RemainingItemCount
	if m.Kubeweir != nil {
		a.count = m.Kubeweir.Count
	}
	a.keys, err = keysOf(list)
	return a, err
}

func decodeMap(contentType string, body []byte) (m map[string]any, err error) {
	switch {
	case strings.HasPrefix(contentType, "application/cbor"):
		err = direct.Unmarshal(body, &m)
	case strings.HasPrefix(contentType, "application/yaml"):
		err = yaml.Unmarshal(body, &m)
	default:
		err = json.Unmarshal(body, &m)
	}
	return m, err
}

func keyOf(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// keysOf returns the keys of the items or rows of a list, or the key of a single object.
func keysOf(list map[string]any) (keys []string, err error) {
	items, ok := list["items"].([]any)
	if rows, isTable := list["rows"].([]any); isTable {
		items, ok = nil, true
		for _, row := range rows {
			one, _ := row.(map[string]any)
			items = append(items, one["object"])
		}
	}
	if !ok && list["items"] == nil && list["rows"] == nil && list["metadata"] != nil && !strings.HasSuffix(fmt.Sprint(list["kind"]), "List") && list["kind"] != "Table" {
		items = []any{list}
	}
	for _, item := range items {
		one, _ := item.(map[string]any)
		m, _ := one["metadata"].(map[string]any)
		name, _ := m["name"].(string)
		namespace, _ := m["namespace"].(string)
		if name == "" {
			return nil, fmt.Errorf("an item without a name: %v", item)
		}
		keys = append(keys, keyOf(namespace, name))
	}
	return keys, nil
}

// list reads all pages of a list.
func (c *client) list(ctx context.Context, r *request) (whole response, err error) {
	path := r.path()
	for page := 0; ; page++ {
		resp, body, err := c.get(ctx, path, r.header())
		if err != nil {
			return whole, err
		}
		whole.raw = append(whole.raw, body...)
		if resp.StatusCode != http.StatusOK {
			whole.status = resp.StatusCode
			return whole, nil
		}
		one, err := decodeList(resp.Header.Get("Content-Type"), body)
		if err != nil {
			return whole, fmt.Errorf("%w in %.300s", err, body)
		}
		if page == 0 {
			whole.status, whole.warning, whole.count, whole.remaining = resp.StatusCode, resp.Header.Get("Warning"), one.count, one.remaining
		} else if resp.Header.Get("Warning") != whole.warning {
			return whole, fmt.Errorf("page %d: Warning %q", page, resp.Header.Get("Warning"))
		}
		if limit, _ := strconv.Atoi(r.options.Get("limit")); one.next != "" && len(one.keys) != limit {
			return whole, fmt.Errorf("page %d has %d objects", page, len(one.keys))
		}
		whole.keys = append(whole.keys, one.keys...)
		if one.next == "" {
			return whole, nil
		}
		next := *r
		next.options = make(map[string][]string)
		for k, v := range r.options {
			next.options[k] = v
		}
		next.options.Del("resourceVersion")
		next.options.Del("resourceVersionMatch")
		next.options.Set("continue", one.next)
		path = next.path()
	}
}

// An event is a watch event.
type event struct {
	kind, key string
	ends      bool // it is the bookmark that ends the initial events
	code      int  // of an ERROR event
}

// A stream is an open watch.
type stream struct {
	status  int
	warning string
	next    func() (event, error)
	close   func()
	raw     *bytes.Buffer
}

// watch opens a watch.
func (c *client) watch(ctx context.Context, r *request) (*stream, error) {
	if r.socket {
		return c.dial(ctx, r)
	}
	ctx, cancel := context.WithCancel(ctx)
	resp, err := c.open(ctx, r.path(), r.header())
	if err != nil {
		cancel()
		return nil, err
	}
	s := &stream{status: resp.StatusCode, warning: resp.Header.Get("Warning"), raw: new(bytes.Buffer), close: func() { cancel(); _ = resp.Body.Close() }}
	if s.status != http.StatusOK {
		return s, nil
	}
	var framer runtime.Framer
	switch contentType := resp.Header.Get("Content-Type"); {
	case strings.HasPrefix(contentType, "application/vnd.kubernetes.protobuf"):
		framer = protobuf.LengthDelimitedFramer
	case strings.HasPrefix(contentType, "application/cbor"):
		framer = cbor.NewFramer()
	default:
		framer = nil
	}
	body := &lazy{resp: resp}
	tee := io.TeeReader(body, s.raw)
	if framer == nil {
		decoder := json.NewDecoder(tee)
		s.next = func() (event, error) {
			var m map[string]any
			if err := decoder.Decode(&m); err != nil {
				return event{}, err
			}
			return eventOf(m)
		}
		return s, nil
	}
	frames := framer.NewFrameReader(io.NopCloser(tee))
	s.next = func() (event, error) {
		frame, err := readFrame(frames)
		if err != nil {
			return event{}, err
		}
		if framer == protobuf.LengthDelimitedFramer {
			return protobufEvent(frame)
		}
		var m map[string]any
		if err := direct.Unmarshal(frame, &m); err != nil {
			return event{}, err
		}
		return eventOf(m)
	}
	return s, nil
}

// lazy decompresses the body of a watch. It reads the header only with the first event.
type lazy struct {
	resp *http.Response
	body io.Reader
}

func (l *lazy) Read(p []byte) (n int, err error) {
	if l.body == nil {
		if l.body, err = decompressed(l.resp); err != nil {
			return 0, err
		}
	}
	return l.body.Read(p)
}

func readFrame(r io.Reader) ([]byte, error) {
	buf := make([]byte, 1<<20)
	n, err := r.Read(buf)
	return buf[:n], err
}

func protobufEvent(frame []byte) (e event, err error) {
	var w metav1.WatchEvent
	if err := w.Unmarshal(frame); err != nil {
		return e, err
	}
	e.kind = w.Type
	inner, _, err := types.UniversalDeserializer().Decode(w.Object.Raw, nil, nil)
	if err != nil {
		return e, err
	}
	if status, ok := inner.(*metav1.Status); ok {
		e.code = int(status.Code)
		return e, nil
	}
	one, err := meta.Accessor(inner)
	if err != nil {
		return e, err
	}
	e.key, e.ends = keyOf(one.GetNamespace(), one.GetName()), one.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
	return e, nil
}

func eventOf(m map[string]any) (e event, err error) {
	e.kind, _ = m["type"].(string)
	object, _ := m["object"].(map[string]any)
	switch e.kind {
	case "ERROR":
		code, _ := object["code"].(float64)
		if whole, ok := object["code"].(int64); ok {
			code = float64(whole)
		}
		e.code = int(code)
		return e, nil
	case "BOOKMARK":
		if rows, ok := object["rows"].([]any); ok && len(rows) == 1 {
			object, _ = rows[0].(map[string]any)["object"].(map[string]any)
		}
		m, _ := object["metadata"].(map[string]any)
		annotations, _ := m["annotations"].(map[string]any)
		e.ends = annotations[metav1.InitialEventsAnnotationKey] == "true"
		return e, nil
	}
	keys, err := keysOf(object)
	if err != nil || len(keys) != 1 {
		return e, fmt.Errorf("event with the keys %v: %w", keys, err)
	}
	e.key = keys[0]
	return e, nil
}

// dial opens a watch over a WebSocket.
func (c *client) dial(ctx context.Context, r *request) (*stream, error) {
	header := r.header()
	header.Set("Origin", c.url)
	dialer := websocket.Dialer{TLSClientConfig: &tls.Config{RootCAs: bed.Kube.ServingCAs()}, HandshakeTimeout: 10 * time.Second}
	conn, resp, err := dialer.DialContext(ctx, "wss"+strings.TrimPrefix(c.url, "https")+r.path(), header)
	s := &stream{raw: new(bytes.Buffer), close: func() {}}
	if errors.Is(err, websocket.ErrBadHandshake) {
		s.status = resp.StatusCode
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	s.status, s.close = http.StatusOK, func() { _ = conn.Close() }
	s.next = func() (event, error) {
		_, message, err := conn.ReadMessage()
		if err != nil {
			return event{}, err
		}
		s.raw.Write(message)
		var m map[string]any
		if err := json.Unmarshal(message, &m); err != nil {
			return event{}, err
		}
		return eventOf(m)
	}
	return s, nil
}

// initial reads the initial events of a watch.
func (s *stream) initial() (a response, err error) {
	a = response{status: s.status, warning: s.warning, count: -1}
	if s.status != http.StatusOK {
		return a, nil
	}
	for {
		e, err := s.next()
		switch {
		case err != nil:
			return a, err
		case e.ends:
			a.raw = s.raw.Bytes()
			return a, nil
		case e.kind != "ADDED":
			return a, fmt.Errorf("unexpected initial event %+v", e)
		}
		a.keys = append(a.keys, e.key)
	}
}
