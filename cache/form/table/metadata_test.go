package table

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestPartialMetadataLikeUpstream(t *testing.T) {
	for _, raw := range []string{
		customObject,
		`{"apiVersion":"ex.com/v1","kind":"Widget"}`,
		`{"apiVersion":"ex.com/v1","kind":"Widget","metadata":{"resourceVersion":"1","annotations":{"k8s.io/initial-events-end":"true"}}}`,
		`{"apiVersion":"ex.com/v1","kind":"Widget","Metadata":{"name":"no"},"metadata":{"name":"w","Name":"no","generateName":"g","uid":"u",
"generation":4,"creationTimestamp":"2020-01-02T03:04:05Z","deletionTimestamp":"2020-01-02T03:04:06Z","deletionGracePeriodSeconds":30,
"selfLink":"/x","unknown":{"a":1},"labels":{"b":"<&>","a":""},"annotations":{},"finalizers":["f"],"ownerReferences":[{"apiVersion":"v1",
"kind":"Pod","name":"p","uid":"q","controller":true,"blockOwnerDeletion":false}],"managedFields":[{"manager":"m","operation":"Update",
"apiVersion":"v1","time":"2020-01-02T03:04:05Z","fieldsType":"FieldsV1","fieldsV1":{"f:b":{},"f:a":{".":{}}},"subresource":"status"}]}}`,
		`{"apiVersion":"ex.com/v1","kind":"Widget","metadata":{"name":3,"labels":{"a":1},"generation":"x","creationTimestamp":"yesterday","finalizers":"f"}}`,
	} {
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON([]byte(raw)); err != nil {
			t.Fatal(err)
		}
		want, err := json.Marshal(&meta.AsPartialObjectMetadata(object).ObjectMeta)
		if err != nil {
			t.Fatal(err)
		}
		got, err := PartialMetadata([]byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("\n got %s\nwant %s", got, want)
		}
	}
	if _, err := PartialMetadata([]byte(`{"metadata":`)); err == nil {
		t.Error("no error for half an object")
	}
}

func TestHideAnnotations(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{`{"name":"a","annotations":{"hide":"1"},"uid":"u"}`, `{"name":"a","uid":"u"}`},
		{`{"annotations":{"hide":"1","keep":"\u003chide\u003e","also":"2"}}`, `{"annotations":{"keep":"\u003chide\u003e"}}`},
		{`{"annotations":{"keep":"x"},"future":[1.50,{"hide":2}]}`, `{"annotations":{"keep":"x"},"future":[1.50,{"hide":2}]}`},
		{`{"name":"hide"}`, `{"name":"hide"}`},
		{`{ "annotations" : { "hide" : "1" , "keep" : "2" } , "x" : null }`, `{"annotations":{"keep":"2"},"x":null}`},
		{`{}`, `{}`},
	} {
		got, err := HideAnnotations([]byte(c.in), []string{"hide", "also"})
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != c.want {
			t.Errorf("%s: got %s, want %s", c.in, got, c.want)
		}
	}
	for _, in := range []string{`"hide"`, `{"hide"`, `{"annotations":{"hide":}}`, `{"annotations":["hide"]}`, `hide`} {
		if _, err := HideAnnotations([]byte(in), []string{"hide"}); err == nil {
			t.Errorf("%s: no error", in)
		}
	}
}
