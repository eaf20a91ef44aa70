package matrix

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	cborserializer "k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// drop asks for objects without their managedFields. kube-apiserver up to 1.37 does not know it.
const drop = ";drop=metadata.managedFields"

// A later simulates a kube-apiserver that supports drop and CBOR. It decodes the responses of a
// real kube-apiserver and encodes them again with the same libraries as kube-apiserver.
type later struct {
	next http.RoundTripper
	// cbor means that the real kube-apiserver supports CBOR.
	cbor   bool
	codecs map[string]runtime.Serializer // by media type
}

func newLater(next http.RoundTripper, hasCBOR bool) *later {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientscheme.AddToScheme(scheme))
	utilruntime.Must(metav1.AddMetaToScheme(scheme))
	l := &later{next: next, cbor: hasCBOR, codecs: map[string]runtime.Serializer{cbor: cborserializer.NewSerializer(scheme, scheme)}}
	for _, info := range serializer.NewCodecFactory(scheme).SupportedMediaTypes() {
		l.codecs[info.MediaType] = info.Serializer
	}
	return l
}

func (l *later) RoundTrip(req *http.Request) (*http.Response, error) {
	accept := req.Header.Get("Accept")
	requested := strings.ReplaceAll(accept, drop, "")
	dropping := requested != accept
	if dropping || !l.cbor {
		// It is undefined what a real kube-apiserver returns in CBOR for an object with dropped fields,
		// so request JSON.
		requested = strings.ReplaceAll(requested, cbor, json)
	}
	if requested == accept {
		return l.next.RoundTrip(req)
	}
	req = req.Clone(req.Context())
	req.Header.Set("Accept", requested)
	zip := req.Header.Get("Accept-Encoding") == "gzip"
	req.Header.Del("Accept-Encoding")
	resp, err := l.next.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		return resp, err
	}
	from, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	c := conversion{later: l, from: from, to: from, drop: dropping, zip: zip}
	if strings.Contains(accept, cbor) {
		c.to = cbor
		resp.Header.Set("Content-Type", cbor)
	}
	if req.URL.Query().Has("watch") {
		if c.to == cbor {
			resp.Header.Set("Content-Type", cbor+"-seq")
		}
		r, w := io.Pipe()
		go c.events(w, resp.Body)
		resp.Body = pipe{r, resp.Body}
		return resp, nil
	}
	return c.whole(resp)
}

// A conversion converts a response.
type conversion struct {
	*later
	from, to string // media types
	drop     bool   // remove managedFields
	zip      bool   // compress large bodies
}

// compressedFrom is the size from which kube-apiserver compresses a list.
const compressedFrom = 128 << 10

func (c conversion) whole(resp *http.Response) (*http.Response, error) {
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err == nil {
		body, err = c.convert(body)
	}
	if err != nil {
		return nil, err
	}
	if c.zip && len(body) > compressedFrom {
		var zipped bytes.Buffer
		z := gzip.NewWriter(&zipped)
		_, err := z.Write(body)
		if err = errors.Join(err, z.Close()); err != nil {
			return nil, err
		}
		body = zipped.Bytes()
		resp.Header.Set("Content-Encoding", "gzip")
		resp.Header.Add("Vary", "Accept-Encoding")
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	resp.Header.Set("Content-Length", fmt.Sprint(len(body)))
	return resp, nil
}

// pipe is the body of a watch. Closing it closes the server's body, too.
type pipe struct {
	*io.PipeReader
	from io.Closer
}

func (p pipe) Close() error {
	_ = p.PipeReader.Close()
	return p.from.Close()
}

// events converts the events of a watch until it ends or the reader closes the pipe.
func (c conversion) events(w *io.PipeWriter, from io.Reader) {
	one := c.line
	if c.from == protobuf {
		one = c.frame
	}
	for r := bufio.NewReader(from); ; {
		event, err := one(r)
		if err == nil {
			_, err = w.Write(event)
		}
		if err != nil {
			_ = w.CloseWithError(err)
			return
		}
	}
}

func (c conversion) line(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return line, err
	}
	var event struct {
		Type   string
		Object stdjson.RawMessage
	}
	if err := stdjson.Unmarshal(line, &event); err != nil {
		return nil, err
	}
	object, err := c.convert(append(event.Object, '\n'))
	if err != nil {
		return nil, err
	}
	if c.to == cbor {
		var out bytes.Buffer
		err := c.codecs[cbor].Encode(&metav1.WatchEvent{Type: event.Type, Object: runtime.RawExtension{Raw: object}}, &out)
		return out.Bytes(), err
	}
	return fmt.Appendf(nil, "{\"type\":%q,\"object\":%s}\n", event.Type, bytes.TrimSuffix(object, []byte("\n"))), nil
}

func (c conversion) frame(r *bufio.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	message := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(r, message); err != nil {
		return nil, err
	}
	var event metav1.WatchEvent
	err := event.Unmarshal(message)
	if err == nil {
		if event.Object.Raw, err = c.convert(event.Object.Raw); err == nil {
			message, err = event.Marshal()
		}
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(message))), message...), err
}

// convert converts one body.
func (c conversion) convert(body []byte) ([]byte, error) {
	codec := c.codecs[c.from]
	if codec == nil {
		return nil, fmt.Errorf("no serializer for %q", c.from)
	}
	obj, err := c.decode(body)
	if err != nil {
		return nil, err
	}
	again, err := encode(codec, obj)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(again, body) {
		return nil, fmt.Errorf("decoding and encoding %q again gives %q", body, again)
	}
	if c.drop {
		if err := c.dropFrom(obj); err != nil {
			return nil, err
		}
	}
	return encode(c.codecs[c.to], obj)
}

func (c conversion) dropFrom(obj runtime.Object) error {
	if table, ok := obj.(*metav1.Table); ok {
		for i := range table.Rows {
			raw := &table.Rows[i].Object.Raw
			if *raw == nil {
				continue
			}
			row, err := c.convert(append(bytes.Clone(*raw), '\n'))
			if err != nil {
				return err
			}
			*raw = bytes.TrimSuffix(row, []byte("\n"))
		}
		return nil
	}
	if meta.IsListType(obj) {
		return meta.EachListItem(obj, c.dropFrom)
	}
	o, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	o.SetManagedFields(nil)
	return nil
}

// decode decodes an object of any type. An unknown type is a custom resource, or a list of them.
func (c conversion) decode(body []byte) (runtime.Object, error) {
	obj, _, err := c.codecs[c.from].Decode(body, nil, nil)
	if !runtime.IsNotRegisteredError(err) {
		return obj, err
	}
	if c.from == inYAML {
		if body, err = yaml.YAMLToJSON(body); err != nil {
			return nil, err
		}
	}
	obj, _, err = unstructured.UnstructuredJSONScheme.Decode(body, nil, nil)
	return obj, err
}

func encode(codec runtime.Serializer, obj runtime.Object) ([]byte, error) {
	var out bytes.Buffer
	err := codec.Encode(obj, &out)
	return out.Bytes(), err
}
