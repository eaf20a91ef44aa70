package read_test

import (
	"bytes"

	stdjson "encoding/json"
	"errors"
	"strconv"
	"time"

	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/read"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/soak"
)

// The oracle consists of upstream's own types and serializers.

// TestListBytes compares lists with the output of upstream's serializers for the same objects.
func TestListBytes(t *testing.T) {
	b := newReadBench(t)
	b.fill(200, 1500)
	b.manage()
	type listCase struct {
		path string
		keep func(cachetest.Object) bool
	}
	cases := []listCase{
		{"?resourceVersion=0", func(cachetest.Object) bool { return true }},
		{"ns-1?resourceVersion=0", func(o cachetest.Object) bool { return o.GetNamespace() == "ns-1" }},
		{"nowhere?resourceVersion=0", func(cachetest.Object) bool { return false }},
		{"?resourceVersion=0&labelSelector=tenth%3D0", func(o cachetest.Object) bool { return o.GetLabels()["tenth"] == "0" }},
		{"?resourceVersion=0&labelSelector=tenth+in+(0,3),app", func(o cachetest.Object) bool {
			return (o.GetLabels()["tenth"] == "0" || o.GetLabels()["tenth"] == "3") && o.GetLabels()["app"] != ""
		}},
		{"ns-0?resourceVersion=0&fieldSelector=metadata.name%3Dweb-00004", func(o cachetest.Object) bool { return o.GetName() == "web-00004" }},
		{"?resourceVersion=0&fieldSelector=metadata.namespace%3Dns-2", func(o cachetest.Object) bool { return o.GetNamespace() == "ns-2" }},
		{"?", func(cachetest.Object) bool { return true }},
	}
	for _, gvr := range []schema.GroupVersionResource{cachetest.Pods, cachetest.Nodes, cachetest.Widgets} {
		for name, rep := range representations() {
			enc := rep.Encoding
			if gvr == cachetest.Widgets {
				enc = api.JSON
			}
			c := b.collection(gvr, enc)
			for i, tc := range cases {
				if gvr == cachetest.Nodes && (!strings.HasPrefix(tc.path, "?") || strings.Contains(tc.path, "namespace")) {
					continue
				}
				var codings []api.Compression
				if soak.Enabled() || i == 0 || name == "json" { // each with each form and each list, but not every pair
					codings = []api.Compression{api.Gzip, api.Zstd}
				}
				t.Run(gvr.Resource+" "+name+" "+tc.path, func(t *testing.T) {
					b.checkList(t, c, tc.path, rep, filterObjects(b.source.Objects(gvr), tc.keep), codings)
				})
			}
		}
	}
}

// TestGetBytes is TestListBytes for gets.
func TestGetBytes(t *testing.T) {
	b := newReadBench(t)
	b.fill(20, 1500)
	big := cachetest.BigPod("ns-0/huge", "node-1", 200_000)
	b.source.Create(cachetest.Pods, big)
	b.manage()
	for _, gvr := range []schema.GroupVersionResource{cachetest.Pods, cachetest.Nodes, cachetest.Widgets} {
		for name, rep := range representations() {
			enc := rep.Encoding
			if gvr == cachetest.Widgets {
				enc = api.JSON
			}
			c := b.collection(gvr, enc)
			for _, o := range b.source.Objects(gvr) {
				t.Run(gvr.Resource+" "+name+" "+o.GetName(), func(t *testing.T) { b.checkGet(t, c, rep, o) })
			}
		}
	}
}

func (b *readBench) checkList(t *testing.T, c *cache.Collection, path string, rep api.Representation, objs []cachetest.Object, codings []api.Compression) {
	t.Helper()
	req := cachetest.ReadRequest(t, path, rep)
	req.MostRecent = true
	resp, err := b.reader.List(t.Context(), c, req)
	if rep.Encoding == api.Protobuf && (rep.Transform == api.Table || c.Resource().Custom && rep.Transform != api.PartialMetadata) {
		if !errors.Is(err, read.ErrForward) {
			t.Fatalf("%v, want ErrForward", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	body := cachetest.Body(t, resp)
	if resp.Status != 200 || resp.Header.Get("Content-Type") != rep.Encoding.MediaType() || resp.Header.Get("Cache-Control") != "no-cache, private" || resp.Header.Has("Vary") {
		t.Errorf("status %d, %v", resp.Status, resp.Header)
	}
	listMeta := metav1.ListMeta{ResourceVersion: strconv.FormatUint(c.RV(), 10)}
	if rep.Transform == api.Table {
		b.checkTable(t, c.Resource(), body, rep, listMeta, objs)
	} else if want := expected(t, c.Resource(), objs, listMeta, rep); !bytes.Equal(body, want) {
		t.Errorf("got  %.600q\nwant %.600q", body, want)
	}
	for _, coding := range codings {
		req.Compression = coding
		resp, err := b.reader.List(t.Context(), c, req)
		if err != nil {
			t.Fatal(err)
		}
		compressed := cachetest.Body(t, resp)
		if !bytes.Equal(compressed, body) {
			t.Errorf("%v: the body differs", coding)
		}
		if big := len(body) > api.CompressionThreshold; big != (resp.Header.Get("Content-Encoding") == coding.String()) || big != (resp.Header.Get("Vary") == "Accept-Encoding") {
			t.Errorf("%v of %d bytes: %v", coding, len(body), resp.Header)
		}
	}
}

// checkTable decodes a Table into its Go type and encodes it again; its rows must be those of the
// objects.
func (b *readBench) checkTable(t *testing.T, res *source.Resource, body []byte, rep api.Representation, listMeta metav1.ListMeta, objs []cachetest.Object) {
	t.Helper()
	var got metav1.Table
	if err := stdjson.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	if again := encodeAs(t, &got, rep); !bytes.Equal(again, body) {
		t.Errorf("got  %.400q\nwant %.400q", body, again)
	}
	if got.ResourceVersion != listMeta.ResourceVersion || len(got.Rows) != len(objs) {
		t.Fatalf("resourceVersion %s, %d rows; want %s, %d", got.ResourceVersion, len(got.Rows), listMeta.ResourceVersion, len(objs))
	}
	objs = shown(objs, rep)
	for i, row := range got.Rows {
		if row.Cells[0] != objs[i].GetName() || row.Cells[1] != objs[i].GetCreationTimestamp().UTC().Format(time.RFC3339) {
			t.Errorf("row %d: %v", i, row.Cells)
		}
		var want []byte
		switch rep.IncludeObject {
		case api.IncludeMetadata:
			want, _ = stdjson.Marshal(partial(objs[i]))
		case api.IncludeObjectFull:
			o := objs[i].DeepCopyObject()
			o.GetObjectKind().SetGroupVersionKind(res.GroupVersion().WithKind(res.Kind))
			want, _ = stdjson.Marshal(o)
		case api.IncludeNone:
			want = []byte("null")
		}
		raw := row.Object.Raw
		if raw == nil {
			raw = []byte("null")
		}
		var compact bytes.Buffer
		if err := stdjson.Compact(&compact, raw); err != nil || compact.String() != string(want) {
			t.Errorf("row %d: object %s\nwant %s", i, compact.String(), want)
		}
	}
}

func (b *readBench) checkGet(t *testing.T, c *cache.Collection, rep api.Representation, o cachetest.Object) {
	t.Helper()
	req := cachetest.ReadRequest(t, o.GetNamespace()+"/"+o.GetName()+"?resourceVersion=0", rep)
	resp, err := b.reader.Get(t.Context(), c, req)
	if rep.Encoding == api.Protobuf && (rep.Transform == api.Table || c.Resource().Custom && rep.Transform != api.PartialMetadata) {
		if !errors.Is(err, read.ErrForward) {
			t.Fatalf("%v, want ErrForward", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	body := cachetest.Body(t, resp)
	res := c.Resource()
	o = shown([]cachetest.Object{o}, rep)[0]
	switch rep.Transform {
	case api.Table:
		b.checkTable(t, res, body, rep, metav1.ListMeta{ResourceVersion: o.GetResourceVersion()}, []cachetest.Object{o})
	case api.PartialMetadata:
		if want := encodeAs(t, partial(o), rep); !bytes.Equal(body, want) {
			t.Errorf("got  %q\nwant %q", body, want)
		}
	default:
		typed := o.DeepCopyObject()
		typed.GetObjectKind().SetGroupVersionKind(res.GroupVersion().WithKind(res.Kind))
		if want := encodeAs(t, typed, rep); !bytes.Equal(body, want) {
			t.Errorf("got  %.500q\nwant %.500q", body, want)
		}
	}
	for _, coding := range []api.Compression{api.Gzip, api.Zstd} {
		req.Compression = coding
		if resp, err = b.reader.Get(t.Context(), c, req); err != nil || !bytes.Equal(cachetest.Body(t, resp), body) {
			t.Errorf("%v: the body differs (%v)", coding, err)
		}
		if (len(body) > api.CompressionThreshold) != resp.Header.Has("Content-Encoding") {
			t.Errorf("%v of %d bytes: %v", coding, len(body), resp.Header)
		}
	}
}
