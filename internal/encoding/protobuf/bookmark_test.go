package protobuf

import (
	"bytes"
	"encoding/hex"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/encoding"
	"github.com/kubeweir/kubeweir/internal/encoding/encodingtest"
)

// podBookmarkFrame is the complete frame of a protobuf bookmark for pods from kube-apiserver
// v1.36.3.
const podBookmarkFrame = "000000900a08424f4f4b4d41524b1283010a80016b3873000a090a0276311203506f64126b0a360a0012001a0022002a003203323138380042006221" +
	"0a196b38732e696f2f696e697469616c2d6576656e74732d656e6412047472756512" +
	"1c1a003200420" + "04a005200580060006800820100" + "8a01009a0100c201001a130a001a0022002a0032004a005a00720088010" + "01a002200"

func TestBookmark(t *testing.T) {
	frame, err := hex.DecodeString(podBookmarkFrame)
	if err != nil {
		t.Fatal(err)
	}
	var event metav1.WatchEvent
	if err := event.Unmarshal(frame[4:]); err != nil {
		t.Fatal(err)
	}
	e, err := Open(event.Object.Raw)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Codec{}.ParseBookmark(e.Raw)
	if want := (encoding.Bookmark{ResourceVersion: 218, InitialEventsEnd: true}); err != nil || got != want {
		t.Fatalf("parsed %+v, %v", got, err)
	}
	tmpl, err := Codec{}.LearnBookmark(e.Raw)
	if err != nil {
		t.Fatal(err)
	}
	var again encoding.Pieces
	Codec{}.Event(&again, api.Bookmark, "v1", "Pod", tmpl.AppendObject(nil, 218, true))
	encodingtest.Same(t, "same frame again", bytes.Join(again.List, nil), frame)
}

func TestBookmarkErrors(t *testing.T) {
	for name, raw := range map[string][]byte{
		"empty": nil, "named": encodingtest.Raw(t, api.Protobuf, encodingtest.Pod(1)), "truncated": {0x0a, 9, 0x32}, "no version": {0x0a, 0},
		"two metadata": {0x0a, 3, 0x32, 1, '5', 0x0a, 3, 0x32, 1, '5'},
	} {
		if _, err := (Codec{}).LearnBookmark(raw); err == nil {
			t.Errorf("%s accepted", name)
		}
	}
}
