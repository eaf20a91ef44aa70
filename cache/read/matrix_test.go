package read_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/datadriven"
	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/read"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
)

// TestReadMatrix runs the transcripts in testdata/read: the responses to gets and lists for each
// combination of resourceVersion, resourceVersionMatch, limit, continue and selectors.
func TestReadMatrix(t *testing.T) {
	defer goleak.VerifyNone(t)
	files, err := filepath.Glob("testdata/read/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				s := &readScript{readBench: newReadBench(t), gvr: cachetest.Pods}
				datadriven.RunTest(t, file, s.run)
			})
		})
	}
}

// readScript interprets transcripts.
type readScript struct {
	*readBench
	gvr   schema.GroupVersionResource
	token string // of the last list
}

func (s *readScript) run(t *testing.T, td *datadriven.TestData) string {
	switch td.Cmd {
	case "resource":
		s.gvr = map[string]schema.GroupVersionResource{"pods": cachetest.Pods, "nodes": cachetest.Nodes, "widgets": cachetest.Widgets}[td.CmdArgs[0].Key]
		return ""
	case "create", "update":
		return s.write(td)
	case "delete":
		return "revision " + s.source.Delete(s.gvr, td.CmdArgs[0].Key).GetResourceVersion()
	case "bump":
		return fmt.Sprintf("revision %d", s.source.Bump(1))
	case "list", "get":
		var out []string
		for line := range strings.Lines(td.Input) {
			if line = strings.TrimSpace(line); line != "" {
				out = append(out, s.read(t, td.Cmd, line, td.HasArg("recent")))
			}
		}
		return strings.Join(out, "\n")
	}
	t.Fatalf("%s: unknown command %s", td.Pos, td.Cmd)
	return ""
}

// write: create|update KEY [value] [labels=(a:b,...)]. The value is a pod's node or a widget's
// color.
func (s *readScript) write(td *datadriven.TestData) string {
	key, value := td.CmdArgs[0].Key, ""
	var labels []string
	for _, arg := range td.CmdArgs[1:] {
		if arg.Key != "labels" {
			value = arg.Key
			continue
		}
		for _, l := range arg.Vals {
			labels = append(labels, strings.ReplaceAll(l, ":", "="))
		}
	}
	var obj cachetest.Object
	switch s.gvr {
	case cachetest.Pods:
		obj = cachetest.Pod(key, value, labels...)
	case cachetest.Nodes:
		obj = cachetest.Node(key, labels...)
	default:
		obj = cachetest.Widget(key, value, labels...)
	}
	if td.Cmd == "create" {
		return "revision " + s.source.Create(s.gvr, obj).GetResourceVersion()
	}
	return "revision " + s.source.Update(s.gvr, obj).GetResourceVersion()
}

// read performs one read per line: [RESOURCE PATH][?QUERY]. $next is the token of the previous
// list, $token(rv,start) an invented one.
func (s *readScript) read(t *testing.T, verb, line string, recent bool) string {
	path := strings.ReplaceAll(line, "$next", s.token)
	if at := strings.Index(path, "$token("); at >= 0 {
		args, rest, _ := strings.Cut(path[at+len("$token("):], ")")
		rv, start, _ := strings.Cut(args, ",")
		token := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"v":"meta.k8s.io/v1","rv":%s,"start":"%s\u0000"}`, rv, start))
		path = path[:at] + token + rest
	}
	c := s.collection(s.gvr, api.JSON)
	synctest.Wait()
	req := cachetest.ReadRequest(t, path, api.Representation{})
	req.MostRecent = recent
	read := s.reader.List
	if verb == "get" {
		read = s.reader.Get
	}
	resp, err := read(t.Context(), c, req)
	return line + "\n  " + s.outcome(t, verb, resp, err)
}

func (s *readScript) outcome(t *testing.T, verb string, resp *api.Response, err error) string {
	var status apierrors.APIStatus
	switch {
	case errors.Is(err, read.ErrForward):
		return "forward"
	case errors.As(err, &status):
		return fmt.Sprintf("%d %s: %s", status.Status().Code, status.Status().Reason, err)
	case err != nil:
		return "error " + err.Error()
	}
	body := cachetest.Body(t, resp)
	if verb == "get" {
		var o metav1.PartialObjectMetadata
		if err := json.Unmarshal(body, &o); err != nil {
			t.Fatal(err)
		}
		return o.Name + "@" + o.ResourceVersion
	}
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(body, &list); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, o := range list.Items {
		names = append(names, strings.TrimPrefix(o.Namespace+"/"+o.Name, "/")+"@"+o.ResourceVersion)
	}
	out := fmt.Sprintf("rv %s: [%s]", list.ResourceVersion, strings.Join(names, " "))
	if s.token = list.Continue; s.token != "" {
		data, err := base64.RawURLEncoding.DecodeString(s.token)
		if err != nil {
			t.Fatal(err)
		}
		out += " continue " + string(data)
	}
	if list.RemainingItemCount != nil {
		out += fmt.Sprintf(" remaining %d", *list.RemainingItemCount)
	}
	return out
}
