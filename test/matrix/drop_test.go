package matrix

import (
	"bufio"
	"bytes"
	"encoding/binary"
	stdjson "encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
)

// drop asks for objects without their managedFields, which kube-apiserver does not know up to 1.37.
const drop = ";drop=metadata.managedFields"

// dropping makes of the answers of a kube-apiserver what one says that knows drop: they are decoded, and encoded again,
// by the libraries that kube-apiserver has.
type dropping struct{ next http.RoundTripper }

func (d dropping) RoundTrip(req *http.Request) (*http.Response, error) {
	accept := req.Header.Get("Accept")
	if !strings.Contains(accept, drop) {
		return d.next.RoundTrip(req)
	}
	req = req.Clone(req.Context())
	req.Header.Set("Accept", strings.ReplaceAll(accept, drop, ""))
	resp, err := d.next.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		return resp, err
	}
	mediaType, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	if req.URL.Query().Has("watch") {
		r, w := io.Pipe()
		go dropEvents(w, resp.Body, mediaType)
		resp.Body = pipe{r, resp.Body}
		return resp, nil
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err == nil {
		body, err = dropped(body, mediaType)
	}
	if err != nil {
		return nil, err
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	resp.Header.Set("Content-Length", fmt.Sprint(len(body)))
	return resp, nil
}

// pipe is the body of a watch; closing it closes the server's.
type pipe struct {
	*io.PipeReader
	from io.Closer
}

func (p pipe) Close() error {
	_ = p.PipeReader.Close()
	return p.from.Close()
}

// dropEvents copies a watch until it ends or nobody reads.
func dropEvents(w *io.PipeWriter, from io.Reader, mediaType string) {
	one := dropLine
	if mediaType == protobuf {
		one = dropFrame
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

func dropLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return line, err
	}
	var event struct {
		Type   string
		Object stdjson.RawMessage
	}
	if err := stdjson.Unmarshal(line, &event); err != nil || !ofObject(event.Type) {
		return line, err
	}
	object, err := dropped(append(event.Object, '\n'), json)
	return fmt.Appendf(nil, "{\"type\":%q,\"object\":%s}\n", event.Type, bytes.TrimSuffix(object, []byte("\n"))), err
}

func dropFrame(r *bufio.Reader) ([]byte, error) {
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
	if err == nil && ofObject(event.Type) {
		if event.Object.Raw, err = dropped(event.Object.Raw, protobuf); err == nil {
			message, err = event.Marshal()
		}
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(message))), message...), err
}

// ofObject reports whether events of a type have an object that may have managedFields.
func ofObject(event string) bool {
	return event == "ADDED" || event == "MODIFIED" || event == "DELETED"
}

// dropped is a body without managedFields.
func dropped(body []byte, mediaType string) ([]byte, error) {
	codec, err := serializerOf(mediaType)
	if err != nil {
		return nil, err
	}
	obj, err := decode(codec, body)
	if err != nil {
		return nil, err
	}
	again, err := encode(codec, obj)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(again, body) {
		return nil, fmt.Errorf("this library writes %q as %q", body, again)
	}
	if err := dropFrom(obj); err != nil {
		return nil, err
	}
	return encode(codec, obj)
}

func dropFrom(obj runtime.Object) error {
	if table, ok := obj.(*metav1.Table); ok {
		for i := range table.Rows {
			raw := &table.Rows[i].Object.Raw
			if *raw == nil {
				continue
			}
			row, err := dropped(append(bytes.Clone(*raw), '\n'), json)
			if err != nil {
				return err
			}
			*raw = bytes.TrimSuffix(row, []byte("\n"))
		}
		return nil
	}
	if meta.IsListType(obj) {
		return meta.EachListItem(obj, dropFrom)
	}
	o, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	o.SetManagedFields(nil)
	return nil
}

func serializerOf(mediaType string) (runtime.Serializer, error) {
	scheme := runtime.NewScheme()
	if err := clientscheme.AddToScheme(scheme); err != nil {
		return nil, err
	}
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		return nil, err
	}
	info, ok := runtime.SerializerInfoForMediaType(serializer.NewCodecFactory(scheme).SupportedMediaTypes(), mediaType)
	if !ok {
		return nil, fmt.Errorf("no serializer for %q", mediaType)
	}
	return info.Serializer, nil
}

func decode(codec runtime.Serializer, body []byte) (runtime.Object, error) {
	obj, _, err := codec.Decode(body, nil, nil)
	if runtime.IsNotRegisteredError(err) {
		obj, _, err = unstructured.UnstructuredJSONScheme.Decode(body, nil, nil)
	}
	return obj, err
}

func encode(codec runtime.Serializer, obj runtime.Object) ([]byte, error) {
	var out bytes.Buffer
	err := codec.Encode(obj, &out)
	return out.Bytes(), err
}
