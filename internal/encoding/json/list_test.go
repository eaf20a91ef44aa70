package json

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/encoding"
	"github.com/kubeweir/kubeweir/internal/encoding/encodingtest"
)

const testLimit = 1 << 20

// pods returns the options to read a list of pods.
func pods(limit int) encoding.ReadOptions {
	return encoding.ReadOptions{Limit: limit, APIVersion: "v1", Kind: "Pod"}
}

func collect(items *[][]byte) func([]byte) error {
	return func(item []byte) error {
		*items = append(*items, item)
		return nil
	}
}

func TestReadListForms(t *testing.T) {
	tests := map[string]struct {
		body  string
		meta  encoding.ListMeta
		items []string
	}{
		"custom resources, sorted members": {
			`{"apiVersion":"ex.com/v1","items":[{"apiVersion":"ex.com/v1","kind":"Widget","spec":{}}],"kind":"WidgetList","metadata":{"continue":"","resourceVersion":"12"}}` + "\n",
			encoding.ListMeta{Kind: "WidgetList", APIVersion: "ex.com/v1", ResourceVersion: "12", Continue: ""}, []string{`{"apiVersion":"ex.com/v1","kind":"Widget","spec":{}}`},
		},
		"items null":  {`{"kind":"PodList","items":null,"metadata":{"resourceVersion":"1"}}`, encoding.ListMeta{Kind: "PodList", ResourceVersion: "1"}, nil},
		"items empty": {`{"items": [ ] }`, encoding.ListMeta{}, nil},
		"indented": {
			"{\n  \"kind\": \"PodList\",\n  \"items\": [\n    {\n      \"metadata\": {}\n    },\n    {\n  \"kind\": \"Pod\" }\n  ]\n}\n",
			encoding.ListMeta{Kind: "PodList"},
			[]string{`{"kind":"Pod","apiVersion":"v1",` + "\n      \"metadata\": {}\n    }", "{\n  \"kind\": \"Pod\" }"},
		},
		"empty item":      {`{"items":[{},{ }]}`, encoding.ListMeta{}, []string{`{"kind":"Pod","apiVersion":"v1"}`, `{"kind":"Pod","apiVersion":"v1" }`}},
		"unknown members": {`{"x":1.5e3,"y":[true,null,{"items":[]}],"items":[],"z":"\\\""}`, encoding.ListMeta{}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for _, r := range encodingtest.Readers([]byte(tt.body)) {
				var items [][]byte
				meta, err := Codec{}.ReadList(r, pods(testLimit), collect(&items))
				if err != nil {
					t.Fatal(err)
				}
				if meta != tt.meta {
					t.Errorf("meta = %+v, want %+v", meta, tt.meta)
				}
				var got []string
				for _, item := range items {
					got = append(got, string(item))
				}
				if diff := cmp.Diff(tt.items, got); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

func TestReadListRejects(t *testing.T) {
	tests := map[string]string{
		`{"kind":"Status","apiVersion":"v1","status":"Failure"}`: "not a list",
		`[]`:                          "malformed JSON",
		`{"items":[{]}`:               "malformed JSON",
		`{"items":[1]}`:               "an item that is an object",
		`{"items":[{}],"items":[{}]}`: "twice",
		`{"items":[{} {}]}`:           "malformed JSON",
		`{"items":[]} x`:              "want the end",
		`{"items":nil}`:               "items are",
		`{"items":[],"metadata":{"resourceVersion":5}}`:     "metadata of the list",
		`{"items":[{"a":` + strings.Repeat("[", maxDepth+1): "too deeply",
	}
	for body, want := range tests {
		_, err := Codec{}.ReadList(strings.NewReader(body), encoding.ReadOptions{Limit: testLimit}, func([]byte) error { return nil })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: error %v, want one about %q", body, err, want)
		}
	}
}

func FuzzReadList(f *testing.F) {
	f.Add(encodingtest.Body(f, api.JSON, encodingtest.PodList(2, 50)), uint8(3))
	f.Add([]byte(`{"apiVersion":"v1","items":[{"a":"\\\"}"}],"metadata":{}}`), uint8(1))
	f.Add([]byte(`{"items":null}`), uint8(200))
	f.Fuzz(func(t *testing.T, body []byte, portion uint8) {
		var items [][]byte
		meta, err := Codec{}.ReadList(&encodingtest.Portions{B: body, N: int(portion) + 1}, pods(4096), collect(&items))
		if !json.Valid(body) {
			return // the splitter does not check what is between the brackets
		}
		var want struct {
			Kind  string            `json:"kind"`
			Items []json.RawMessage `json:"items"`
		}
		if json.Unmarshal(body, &want) != nil || err != nil {
			return
		}
		if strings.Count(string(body), `"items"`) == 1 && len(items) != len(want.Items) && !bytes.ContainsAny(body, `\`) {
			t.Fatalf("%d items, want %d", len(items), len(want.Items))
		}
		for _, item := range items {
			if !json.Valid(item) {
				t.Fatalf("item is not JSON: %q", item)
			}
		}
		_ = meta
	})
}
