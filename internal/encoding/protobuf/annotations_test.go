package protobuf

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestHideAnnotations(t *testing.T) {
	in := metav1.ObjectMeta{Name: "hide", Annotations: map[string]string{"hide": "1", "keep": "hide", "also": ""}, UID: "u", Generation: 4}
	want := in
	want.Annotations = map[string]string{"keep": "hide"}
	data, err := in.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	wantData, err := want.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	got, err := HideAnnotations(data, []string{"hide", "also"})
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(wantData) {
		t.Errorf("got %q, want %q", got, wantData)
	}
	if _, err := HideAnnotations(append(data, 0x62, 0x7f), []string{"hide"}); err == nil {
		t.Error("no error for a truncated field")
	}
}
