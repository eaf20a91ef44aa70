package transcode

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/encoding/cbor"
	"github.com/kubeweir/kubeweir/internal/encoding/cbor/cbortest"
	"github.com/kubeweir/kubeweir/proxy/response"
	"github.com/kubeweir/kubeweir/proxy/upstream"
)

// A cborUpstream answers with a Secret, in CBOR only if it serves that.
type cborUpstream struct {
	serves bool
	large  int      // bytes that the answer has besides
	asked  []string // method, Content-Type, Accept and body of each request
	open   int      // answers not done
}

const secretJSON = `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"s"},"data":{"a":"AP8="}}`

func (u *cborUpstream) Forward(_ context.Context, r *api.Request, _ upstream.Credentials) *api.Response {
	contentType, accept := r.Header.Get("Content-Type"), r.Header.Get("Accept")
	body := []byte(nil)
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
	}
	u.asked = append(u.asked, strings.Join([]string{r.Method, contentType, accept, string(body)}, "|"))
	u.open++
	resp := &api.Response{Status: 200, Length: -1, Done: func(int64, error) { u.open-- }}
	switch {
	case !u.serves && strings.Contains(contentType, "cbor"):
		resp.Status, resp.Body = 415, []byte(`{"kind":"Status","apiVersion":"v1","code":415}`)
	case !u.serves && strings.HasPrefix(accept, "application/cbor") && !strings.Contains(accept, ","):
		resp.Status, resp.Body = 406, []byte(`{"kind":"Status","apiVersion":"v1","code":406}`)
	case u.serves && strings.Contains(accept, "cbor"):
		resp.Header.Add("Content-Type", "application/cbor")
		resp.Body = []byte("cbor")
		return resp
	default:
		resp.BodyTo = bytes.NewBufferString(secretJSON + strings.Repeat("\n", 1+u.large))
	}
	resp.Header.Add("Content-Type", "application/json")
	return resp
}

func transcodedRequest(method, contentType, accept string, body []byte) *api.Request {
	r := &api.Request{Method: method, Path: "/api/v1/namespaces/n/secrets/s", RawPath: "/api/v1/namespaces/n/secrets/s"}
	if contentType != "" {
		r.Header.Add("Content-Type", contentType)
		r.Body, r.ContentLength = bytes.NewReader(body), int64(len(body))
	}
	if accept != "" {
		r.Header.Add("Accept", accept)
	}
	return r
}

func secretCBOR(t *testing.T) []byte {
	t.Helper()
	item, err := direct.Marshal(map[string]any{"apiVersion": "v1", "kind": "Secret", "data": map[string]any{"a": []byte{0, 255}}})
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte(cbor.SelfDescribed), item...)
}

// TestTranscoder: what a client says in CBOR is passed on, and where the upstream lacks CBOR said in JSON instead.
func TestTranscoder(t *testing.T) {
	const inJSON = `{"data":{"a":"AP8="},"kind":"Secret","apiVersion":"v1"}`
	body := secretCBOR(t)
	for _, tc := range []struct {
		name                        string
		serves                      bool
		method, contentType, accept string
		asked                       []string
		status                      int
		answer                      string // its Content-Type
	}{
		{"served", true, "PUT", "application/cbor", "application/cbor", []string{"PUT|application/cbor|application/cbor|" + string(body)}, 200, "application/cbor"},
		{"create", false, "PUT", "application/cbor", "application/cbor, */*", []string{
			"PUT|application/cbor|application/cbor, */*|" + string(body), "PUT|application/json|application/cbor, */*|" + inJSON}, 200, "application/json"},
		{"apply", false, "PATCH", "application/apply-patch+cbor", "application/json", []string{
			"PATCH|application/apply-patch+cbor|application/json|" + string(body), "PATCH|application/apply-patch+yaml|application/json|" + inJSON}, 200, "application/json"},
		{"nothing but CBOR", false, "PUT", "application/cbor", "application/cbor", []string{
			"PUT|application/cbor|application/cbor|" + string(body), "PUT|application/json|application/json|" + inJSON}, 200, "application/cbor"},
		{"get", false, "GET", "", "application/cbor", []string{"GET||application/cbor|", "GET||application/json|"}, 200, "application/cbor"},
		{"metadata", false, "GET", "", "application/cbor;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", []string{
			"GET||application/cbor;as=PartialObjectMetadata;v=v1;g=meta.k8s.io|", "GET||application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io|"}, 200, "application/cbor"},
		{"get of a Table", false, "GET", "", "application/cbor;as=Table;v=v1;g=meta.k8s.io", []string{"GET||application/cbor;as=Table;v=v1;g=meta.k8s.io|"}, 406, "application/json"},
		{"get of either", false, "GET", "", "application/json;q=0.9,application/cbor;q=1", []string{"GET||application/json;q=0.9,application/cbor;q=1|"}, 200, "application/json"},
		{"JSON", false, "PUT", "application/json", "application/json", []string{"PUT|application/json|application/json|" + string(body)}, 200, "application/json"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			u := &cborUpstream{serves: tc.serves}
			now := time.Unix(1_700_000_000, 0)
			f := New(u, func() time.Time { return now }, nil)
			ask := func() *api.Response {
				return f.Forward(t.Context(), transcodedRequest(tc.method, tc.contentType, tc.accept, body), upstream.Credentials{}, "jane")
			}
			resp := ask()
			if !slices.Equal(u.asked, tc.asked) || resp.Status != tc.status || resp.Header.Get("Content-Type") != tc.answer {
				t.Errorf("%d %q\nasked %q\n want %q", resp.Status, resp.Header.Get("Content-Type"), u.asked, tc.asked)
			}
			if tc.answer == "application/cbor" && !tc.serves {
				if got, want := cbortest.Diagnose(resp.Body), "55799({'kind': 'Secret', 'apiVersion': 'v1', 'metadata': {'name': 's'}, 'data': {'a': 22(h'00ff')}})"; got != want {
					t.Errorf("got %s\nwant %s", got, want)
				}
			}
			response.Finish(resp, 0, nil)
			if u.open != 0 {
				t.Errorf("%d answers are not done", u.open)
			}
			// What the upstream lacks it is not asked for a while.
			last := tc.asked[len(tc.asked)-1:]
			again := func() int {
				resp := ask()
				response.Finish(resp, 0, nil)
				return resp.Status
			}
			if u.asked = nil; again() != tc.status || !slices.Equal(u.asked, last) {
				t.Errorf("again: asked %q, want %q", u.asked, last)
			}
			now = now.Add(lackingFor)
			if u.asked = nil; again() != tc.status || !slices.Equal(u.asked, tc.asked) {
				t.Errorf("later: asked %q, want %q", u.asked, tc.asked)
			}
			if n := f.answers.InUse(); n != 0 || u.open != 0 {
				t.Errorf("%d places are taken, %d answers not done", n, u.open)
			}
		})
	}
}

// TestTranscoderProxied: what goes to a pod or service is sent once, in the client's words: who refuses that there may
// have done it all the same.
func TestTranscoderProxied(t *testing.T) {
	u := &cborUpstream{}
	f := New(u, time.Now, nil)
	for _, path := range []string{"/api/v1/namespaces/n/services/s/proxy/x", "/api/v1/namespaces/n/pods/s/proxy"} {
		r := transcodedRequest("POST", "application/cbor", "application/json", secretCBOR(t))
		r.Path, r.RawPath = path, path
		if resp := f.Forward(t.Context(), r, upstream.Credentials{}, "joe"); resp.Status != 415 {
			t.Errorf("%s: %d", path, resp.Status)
		}
	}
	if len(u.asked) != 2 {
		t.Errorf("asked %d times: %q", len(u.asked), u.asked)
	}
}

// TestTranscoderRefuses what is no CBOR, and too much of it.
func TestTranscoderRefuses(t *testing.T) {
	for _, tc := range []struct {
		body   []byte
		status int
		want   string
	}{
		{[]byte{0xa1}, http.StatusBadRequest, "the object provided is unrecognized: unable to determine group/version/kind: unexpected EOF"},
		{[]byte("\xa2\x41a\x01\x41a\x02"), http.StatusBadRequest, `found duplicate map key \"a\" at map element index 1`},
		{make([]byte, maxTranscodedBody+1), http.StatusRequestEntityTooLarge, "limit is 3145728"},
	} {
		u := &cborUpstream{}
		f := New(u, time.Now, nil)
		resp := f.Forward(t.Context(), transcodedRequest("PUT", "application/cbor", "application/json", tc.body), upstream.Credentials{}, "jane")
		if resp.Status != tc.status || !strings.Contains(string(resp.Body), tc.want) || u.open != 0 {
			t.Errorf("%d %s, %d not done; want %d %s", resp.Status, resp.Body, u.open, tc.status, tc.want)
		}
	}
}

// TestTranscoderIsBounded: what is too large, or more than may be held at a time, is refused.
func TestTranscoderIsBounded(t *testing.T) {
	u := &cborUpstream{large: maxTranscodedAnswer + 1}
	f := New(u, time.Now, nil)
	get := func() *api.Response {
		return f.Forward(t.Context(), transcodedRequest("GET", "", "application/cbor", nil), upstream.Credentials{}, "jane")
	}
	resp := get()
	response.Finish(resp, 0, nil)
	if want := "accept application/json as well"; resp.Status != 500 || !strings.Contains(string(resp.Body), want) || u.open != 0 {
		t.Errorf("%d %s, %d not done; want %s", resp.Status, resp.Body, u.open, want)
	}
	u.large = 0
	for range maxTranscodedAnswers / 4 * 3 {
		if resp := get(); resp.Status != 200 {
			t.Fatalf("%d %s", resp.Status, resp.Body)
		}
	}
	if resp := get(); resp.Status != 429 || u.open != 0 {
		t.Errorf("%d %s, %d not done", resp.Status, resp.Body, u.open)
	}
	another := f.Forward(t.Context(), transcodedRequest("GET", "", "application/cbor", nil), upstream.Credentials{}, "joe")
	if another.Status != 200 {
		t.Errorf("another user: %d %s", another.Status, another.Body)
	}
}
