package read_test

import (
	"fmt"
	"testing"

	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/internal/api"
)

func BenchmarkRead(b *testing.B) {
	r := newReadBench(b)
	fill5000(b, r)
	jsonPods, protoPods := r.collection(cachetest.Pods, api.JSON), r.collection(cachetest.Pods, api.Protobuf)
	for _, bench := range []struct {
		name, path string
		rep        api.Representation
		coding     api.Compression
		match      bool
	}{
		{name: "list/json", path: "?resourceVersion=0"},
		{name: "list/redacted", path: "?resourceVersion=0", rep: api.Representation{Redacted: true}},
		{name: "list/protobuf", path: "?resourceVersion=0", rep: api.Representation{Encoding: api.Protobuf}},
		{name: "list/metadata", path: "?resourceVersion=0", rep: api.Representation{Transform: api.PartialMetadata}},
		{name: "list/table", path: "?resourceVersion=0", rep: api.Representation{Transform: api.Table}},
		{name: "list/gzip", path: "?resourceVersion=0", coding: api.Gzip},
		{name: "list/zstd", path: "?resourceVersion=0", coding: api.Zstd},
		{name: "list/table gzip", path: "?resourceVersion=0", rep: api.Representation{Transform: api.Table}, coding: api.Gzip},
		{name: "list/not modified", path: "?resourceVersion=0", match: true},
		{name: "page of 500", path: "?resourceVersion=1&resourceVersionMatch=NotOlderThan&limit=500"},
		{name: "namespace of 250", path: "ns-07?resourceVersion=0"},
		{name: "label 100 of 5000", path: "?resourceVersion=0&labelSelector=fiftieth%3D7"},
		{name: "node 25 of 5000", path: "?resourceVersion=0&fieldSelector=spec.nodeName%3Dnode-007"},
		{name: "get/json", path: "ns-07/web-00007?resourceVersion=0"},
		{name: "get/redacted", path: "ns-07/web-00007?resourceVersion=0", rep: api.Representation{Redacted: true}},
		{name: "get/protobuf", path: "ns-07/web-00007?resourceVersion=0", rep: api.Representation{Encoding: api.Protobuf}},
		{name: "get/table", path: "ns-07/web-00007?resourceVersion=0", rep: api.Representation{Transform: api.Table}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			c := jsonPods
			if bench.rep.Encoding == api.Protobuf {
				c = protoPods
			}
			req := cachetest.ReadRequest(b, bench.path, bench.rep)
			req.Compression = bench.coding
			read := r.reader.List
			if req.Name != "" {
				read = r.reader.Get
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				resp, err := read(b.Context(), c, req)
				if err != nil {
					b.Fatal(err)
				}
				n := drain(b, resp)
				if i == 0 {
					b.SetBytes(max(n, 1))
				}
				if bench.match {
					req.IfNoneMatch = resp.Header.Get("Etag")
				}
			}
		})
	}
}

// BenchmarkReadUnderChurn changes one pod before each list.
func BenchmarkReadUnderChurn(b *testing.B) {
	r := newReadBench(b)
	fill5000(b, r)
	for _, bench := range []struct {
		name   string
		rep    api.Representation
		coding api.Compression
	}{
		{name: "json"},
		{name: "json gzip", coding: api.Gzip},
		{name: "json zstd", coding: api.Zstd},
		{name: "table", rep: api.Representation{Transform: api.Table}},
		{name: "table gzip", rep: api.Representation{Transform: api.Table}, coding: api.Gzip},
	} {
		b.Run(bench.name, func(b *testing.B) {
			c := r.collection(cachetest.Pods, api.JSON)
			req := cachetest.ReadRequest(b, "?resourceVersion=0", bench.rep)
			req.Compression = bench.coding
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				i := (i * 777) % 5000
				pod := r.source.Update(cachetest.Pods, cachetest.BigPod(fmt.Sprintf("ns-%02d/web-%05d", i%20, i), fmt.Sprintf("node-%03d", i%200), 6000, "app=web"))
				rv, _ := api.ParseResourceVersion(pod.GetResourceVersion())
				if err := c.WaitFor(b.Context(), rv, 1e9); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				resp, err := r.reader.List(b.Context(), c, req)
				if err != nil {
					b.Fatal(err)
				}
				drain(b, resp)
			}
		})
	}
}
