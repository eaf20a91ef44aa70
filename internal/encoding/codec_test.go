package encoding_test

import (
	"bytes"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/encoding"
	"github.com/kubeweir/kubeweir/internal/encoding/encodingtest"
	"github.com/kubeweir/kubeweir/internal/encoding/json"
	"github.com/kubeweir/kubeweir/internal/encoding/protobuf"
)

// codecs are used by every test of this file.
var codecs = map[api.Encoding]encoding.Codec{api.JSON: json.Codec{}, api.Protobuf: protobuf.Codec{}}

const testLimit = 1 << 20

// each runs a test with each codec.
func each(t *testing.T, test func(t *testing.T, enc api.Encoding, codec encoding.Codec)) {
	for enc, codec := range codecs {
		t.Run(enc.String(), func(t *testing.T) { test(t, enc, codec) })
	}
}

// typed returns the options to read a list of Pods with at most limit bytes per item.
func typed(limit int) encoding.ReadOptions {
	return encoding.ReadOptions{Limit: limit, APIVersion: "v1", Kind: "Pod"}
}

func bookmark(rv string, end bool) *corev1.Pod {
	pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{ResourceVersion: rv}}
	if end {
		pod.Annotations = map[string]string{encoding.InitialEventsEnd: "true"}
	}
	return pod
}

func status() *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   "Failure", Message: "too old resource version: 1 (2)", Reason: metav1.StatusReasonExpired, Code: 410,
	}
}

func TestParseBookmark(t *testing.T) {
	each(t, func(t *testing.T, enc api.Encoding, codec encoding.Codec) {
		for _, end := range []bool{true, false} {
			got, err := codec.ParseBookmark(encodingtest.Raw(t, enc, bookmark("42", end)))
			if want := (encoding.Bookmark{ResourceVersion: 42, InitialEventsEnd: end}); err != nil || got != want {
				t.Errorf("%+v, %v; want %+v", got, err, want)
			}
		}
		for _, rv := range []string{"", "0", "x"} {
			if _, err := codec.ParseBookmark(encodingtest.Raw(t, enc, bookmark(rv, true))); err == nil {
				t.Errorf("a bookmark at %q is accepted", rv)
			}
		}
	})
}

// TestLearnBookmark: a learned template renders what the libraries write, whichever of the two
// bookmarks it was learned from.
func TestLearnBookmark(t *testing.T) {
	each(t, func(t *testing.T, enc api.Encoding, codec encoding.Codec) {
		for _, from := range []bool{true, false} {
			learned, err := codec.LearnBookmark(encodingtest.Raw(t, enc, bookmark("218", from)))
			if err != nil {
				t.Fatal(err)
			}
			for _, end := range []bool{true, false} {
				for rv, text := range map[uint64]string{5: "5", 1<<64 - 1: "18446744073709551615"} {
					encodingtest.Same(t, text, learned.AppendObject([]byte("x"), rv, end), append([]byte("x"), encodingtest.Raw(t, enc, bookmark(text, end))...))
				}
			}
		}
		if _, err := codec.LearnBookmark(encodingtest.Raw(t, enc, encodingtest.Pod(1))); err == nil {
			t.Error("learned from an object")
		}
	})
}

// TestNewBookmark: the initial template renders valid bookmarks.
func TestNewBookmark(t *testing.T) {
	each(t, func(t *testing.T, _ api.Encoding, codec encoding.Codec) {
		for _, end := range []bool{true, false} {
			got, err := codec.ParseBookmark(codec.NewBookmark("v1", "Pod", false).AppendObject(nil, 12, end))
			if want := (encoding.Bookmark{ResourceVersion: 12, InitialEventsEnd: end}); err != nil || got != want {
				t.Errorf("%+v, %v; want %+v", got, err, want)
			}
		}
	})
}

func TestParseStatus(t *testing.T) {
	each(t, func(t *testing.T, enc api.Encoding, codec encoding.Codec) {
		want := status()
		got, err := codec.ParseStatus(encodingtest.Raw(t, enc, want))
		if err != nil || got.Code != want.Code || got.Reason != want.Reason || got.Message != want.Message {
			t.Errorf("%+v, %v", got, err)
		}
	})
	if _, err := protobuf.ParseEnvelopedStatus(encodingtest.Body(t, api.Protobuf, status())); err != nil {
		t.Error(err)
	}
	if _, err := protobuf.ParseEnvelopedStatus(encodingtest.Body(t, api.Protobuf, encodingtest.Pod(1))); err == nil {
		t.Error("a pod is accepted as a status")
	}
}

// TestScan: the scan of an object without fields of its own finds the metadata and its content.
func TestScan(t *testing.T) {
	each(t, func(t *testing.T, enc api.Encoding, codec encoding.Codec) {
		pod := encodingtest.Pod(1)
		raw := encodingtest.Raw(t, enc, pod)
		s := encoding.Scan{Encoded: encoding.Encoded{Raw: raw}}
		if err := codec.Scan(&s); err != nil {
			t.Fatal(err)
		}
		if string(s.Name) != pod.Name || string(s.Namespace) != pod.Namespace || string(s.UID) != string(pod.UID) ||
			string(s.ResourceVersion) != pod.ResourceVersion || s.Creation != pod.CreationTimestamp.Unix() || len(s.Labels) != len(pod.Labels) {
			t.Errorf("found %+v", s)
		}
		if !bytes.Contains(raw[s.MetaStart:s.MetaEnd], []byte(pod.GenerateName)) || bytes.Contains(raw[s.MetaStart:s.MetaEnd], []byte(pod.Spec.SchedulerName)) {
			t.Errorf("metadata is %q", raw[s.MetaStart:s.MetaEnd])
		}
		s.Reset()
		if s.Raw != nil || s.Name != nil || len(s.Labels) != 0 {
			t.Errorf("after Reset: %+v", s)
		}
	})
}
