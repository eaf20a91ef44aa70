package transcode

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/cbor"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/encoding/cbor/cbortest"
	"github.com/kubeweir/kubeweir/proxy/response"
	"github.com/kubeweir/kubeweir/proxy/upstream"
)

// jsonWatch answers every watch with the same frames, in JSON alone.
type jsonWatch struct{ frames []string }

func (u *jsonWatch) Forward(_ context.Context, r *api.Request, _ upstream.Credentials) *api.Response {
	resp := &api.Response{Status: 406, Length: -1}
	if r.Header.Get("Accept") == "application/json" {
		resp.Status, resp.Stream = 200, &scriptedStream{frames: u.frames}
	}
	resp.Header.Add("Content-Type", "application/json")
	return resp
}

type scriptedStream struct {
	frames []string
	err    error // of writing
}

func (s *scriptedStream) Start(w api.StreamWriter) {
	for _, f := range s.frames {
		if s.err = w.WriteFrames([][]byte{[]byte(f[:len(f)/2]), []byte(f[len(f)/2:])}); s.err != nil {
			w.Abort()
			return
		}
	}
	w.Close()
}

func (s *scriptedStream) Stop() {}

type recordedWriter struct {
	bytes.Buffer
	closed, aborted bool
}

func (w *recordedWriter) WriteFrames(frames [][]byte) error {
	for _, f := range frames {
		w.Write(f)
	}
	return nil
}
func (w *recordedWriter) Close() { w.closed = true }
func (w *recordedWriter) Abort() { w.aborted = true }

// TestTranscodedWatch: the events of a watch are given in CBOR to who accepts nothing else, in whatever pieces they come.
func TestTranscodedWatch(t *testing.T) {
	const added = `{"type":"ADDED","object":` + secretJSON + "}\n"
	const inCBOR = `55799({'type': 'ADDED', 'object': 55799({'kind': 'Secret', 'apiVersion': 'v1', 'metadata': {'name': 's'}, 'data': {'a': 22(h'00ff')}})})`
	const failed = `giving the upstream\'s event in CBOR: `
	for name, tc := range map[string]struct {
		frames []string
		want   []string // events; the last one of those that fail is part of the message
		aborts bool
	}{
		"whole":         {frames: []string{added}, want: []string{inCBOR}},
		"two":           {frames: []string{added + added}, want: []string{inCBOR, inCBOR}},
		"in pieces":     {frames: strings.SplitAfter(added+"\n"+added, `"`), want: []string{inCBOR, inCBOR}},
		"one byte each": {frames: strings.Split(added, ""), want: []string{inCBOR}},
		"no JSON":       {frames: []string{added, "{]\n"}, want: []string{inCBOR, failed + "invalid character"}, aborts: true},
		"no type":       {frames: []string{`{"object":{}}` + "\n"}, want: []string{failed + "it lacks its type"}, aborts: true},
		"too large":     {frames: []string{added + strings.Repeat(" ", response.MaxEvent+1)}, want: []string{inCBOR, failed + "it is larger than 4194304 bytes"}, aborts: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := New(&jsonWatch{tc.frames}, time.Now, prometheus.NewRegistry())
			r := transcodedRequest("GET", "", "application/cbor", nil)
			r.Path, r.RawPath, r.RawQuery = "/api/v1/secrets", "/api/v1/secrets", "watch=1"
			resp := f.Forward(t.Context(), r, upstream.Credentials{}, "jane")
			if resp.Status != 200 || resp.Header.Get("Content-Type") != "application/cbor-seq" || f.watches.InUse() != 1 {
				t.Fatalf("%d %v", resp.Status, resp.Header)
			}
			var w recordedWriter
			resp.Stream.Start(&w)
			resp.Stream.Stop()
			response.Finish(resp, 0, nil)
			if w.aborted != tc.aborts || w.closed == tc.aborts || f.watches.InUse() != 0 {
				t.Errorf("aborted %t, closed %t, %d places taken", w.aborted, w.closed, f.watches.InUse())
			}
			frames, room := serializer.NewFramer().NewFrameReader(io.NopCloser(&w.Buffer)), make([]byte, 1<<20)
			for i, want := range tc.want {
				n, err := frames.Read(room)
				if err != nil {
					t.Fatal(err)
				}
				if got := cbortest.Diagnose(room[:n]); got != want && "55799("+got+")" != want && !(tc.aborts && strings.Contains(got, want) && strings.Contains(got, "'ERROR'")) {
					t.Errorf("event %d: %s, want %s", i, got, want)
				}
			}
			if n, err := frames.Read(room); err != io.EOF {
				t.Errorf("one more event, %x, %v", room[:n], err)
			}
			events := len(tc.want)
			if tc.aborts {
				events--
				if n := testutil.ToFloat64(f.transcoded.WithLabelValues("event", "error")); n != 1 {
					t.Errorf("%v errors are counted", n)
				}
			}
			if n := testutil.ToFloat64(f.transcoded.WithLabelValues("event", "ok")); n != float64(events) {
				t.Errorf("%v events are counted, want %d", n, events)
			}
		})
	}
}

// TestTranscodedWatchesAreBounded: one more than there may be is told to come again.
func TestTranscodedWatchesAreBounded(t *testing.T) {
	f := New(&jsonWatch{}, time.Now, nil)
	status := 0
	for n := 0; status != 429; n++ {
		r := transcodedRequest("GET", "", "application/cbor", nil)
		r.Path, r.RawPath, r.RawQuery = "/api/v1/secrets", "/api/v1/secrets", "watch=1"
		if status = f.Forward(t.Context(), r, upstream.Credentials{}, "jane").Status; n > maxTranscodedWatches {
			t.Fatal("no bound")
		}
	}
	if n := testutil.ToFloat64(f.transcoded.WithLabelValues("event", "busy")); n != 1 {
		t.Errorf("%v are counted", n)
	}
}
