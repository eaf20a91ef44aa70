package reflector_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeweir/kubeweir/cache"
	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/reflector"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/internal/object"
	"github.com/kubeweir/kubeweir/watchmux"
)

// TestReflectorTranscripts runs the transcripts in testdata/feed. Time is fake; "advance" moves it.
func TestReflectorTranscripts(t *testing.T) {
	defer goleak.VerifyNone(t)
	reflector.WithoutJitter(t)
	files, err := filepath.Glob("testdata/feed/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				s := &script{source: cachetest.New(cachetest.PodResource())}
				defer s.close()
				datadriven.RunTest(t, file, func(t *testing.T, td *datadriven.TestData) string {
					out := s.run(t, td)
					synctest.Wait()
					if s.c != nil {
						if broken := s.c.CheckInvariants(); broken != "" {
							t.Errorf("%s: %s", td.Pos, broken)
						}
					}
					return out
				})
			})
		})
	}
}

// script interprets transcripts.
type script struct {
	source  *cachetest.Source
	manager *cache.Manager
	c       *cache.Collection
	watches map[string]*watchmux.Watcher
	backup  *cachetest.Backup
}

func (s *script) close() {
	if s.manager != nil {
		s.manager.Close()
	}
}

func (s *script) run(t *testing.T, td *datadriven.TestData) string {
	switch td.Cmd {
	case "create", "update", "delete":
		return s.write(t, td)
	case "bump":
		var n uint64
		td.ScanArgs(t, "n", &n)
		return fmt.Sprintf("revision %d", s.source.Bump(n))
	case "source":
		return s.fault(t, td)
	case "calls":
		return strings.Join(s.source.Calls(), "\n")
	case "start":
		return s.start(t)
	case "advance":
		d, err := time.ParseDuration(td.CmdArgs[0].Key)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(d)
		synctest.Wait()
		return ""
	case "state":
		synctest.Wait()
		return s.state()
	case "watch":
		return s.watch(t, td)
	case "events":
		synctest.Wait()
		return s.events(td.CmdArgs[0].Key)
	case "at":
		return s.at(t, td)
	}
	t.Fatalf("%s: unknown command %s", td.Pos, td.Cmd)
	return ""
}

// write: create|update|delete KEY [node=N] [labels=(a=b,...)]
func (s *script) write(t *testing.T, td *datadriven.TestData) string {
	key := td.CmdArgs[0].Key
	if td.Cmd == "delete" {
		return "revision " + s.source.Delete(cachetest.Pods, key).GetResourceVersion()
	}
	node := ""
	td.MaybeScanArgs(t, "node", &node)
	labels := []string{}
	if arg, ok := td.Arg("labels"); ok {
		for _, l := range arg.Vals {
			labels = append(labels, strings.ReplaceAll(l, ":", "="))
		}
	}
	pod := cachetest.Pod(key, node, labels...)
	var written cachetest.Object
	if td.Cmd == "create" {
		written = s.source.Create(cachetest.Pods, pod)
	} else {
		written = s.source.Update(cachetest.Pods, pod)
	}
	return "revision " + written.GetResourceVersion()
}

// fault: source ACTION
func (s *script) fault(t *testing.T, td *datadriven.TestData) string {
	switch action := td.CmdArgs[0].Key; action {
	case "break":
		s.source.Break(errors.New("connection reset"))
	case "end":
		s.source.Break(nil)
	case "down":
		s.source.SetDown(true)
	case "up":
		s.source.SetDown(false)
	case "silent":
		s.source.SetSilent(true)
	case "speaks":
		s.source.SetSilent(false)
	case "compact":
		s.source.Compact()
	case "no-watch-list":
		s.source.NoWatchList()
	case "no-current-version":
		s.source.NoCurrentVersion()
	case "backup":
		s.backup = s.source.Backup()
	case "rewind":
		s.source.Rewind(s.backup)
	case "fail":
		s.source.Fail(td.CmdArgs[1].Key, statusErrors[td.CmdArgs[2].Key])
	default:
		t.Fatalf("%s: unknown action %s", td.Pos, action)
	}
	return ""
}

var statusErrors = map[string]error{
	"expired":     apierrors.NewResourceExpired("too old"),
	"forbidden":   apierrors.NewForbidden(cachetest.PodResource().GroupResource(), "", errors.New("no")),
	"too-large":   api.NewTooLargeResourceVersion(7, 5, 1),
	"retry-after": api.NewTooManyRequests("busy", 20),
	"broken":      errors.New("connection reset"),
}

func (s *script) start(t *testing.T) string {
	if s.manager == nil {
		s.manager = cachetest.NewManager(t, s.source, cache.Limits{})
	}
	c, err := s.manager.Collection(t.Context(), cachetest.PodResource(), api.JSON)
	if err != nil {
		return "error: " + err.Error()
	}
	s.c = c
	s.watches = map[string]*watchmux.Watcher{}
	meta := c.ListMeta()
	return fmt.Sprintf("%s %s, %s", meta.APIVersion, meta.Kind, s.state())
}

// state: what the collection holds, and its age.
func (s *script) state() string {
	st := s.c.State()
	out := fmt.Sprintf("%s at %d:", st.Phase, s.c.RV())
	s.c.Snapshot().Ascend("", "", func(o *object.Object) bool {
		out += fmt.Sprintf(" %s@%d", o.Key, o.RV)
		return true
	})
	if st.Phase == reflector.Stale {
		out += fmt.Sprintf("\nfed until %s ago", time.Since(st.Since).Round(time.Second))
	}
	if st.Phase >= reflector.Stale && st.Err != nil {
		out += "\n" + st.Err.Error()
	}
	return out
}

// watch NAME [from=N]: the default is the current version
func (s *script) watch(t *testing.T, td *datadriven.TestData) string {
	from := s.c.RV()
	if td.HasArg("from") {
		td.ScanArgs(t, "from", &from)
	}
	w, err := s.c.Mux().Watch(from, nil, func() {})
	if err != nil {
		return "error: " + err.Error()
	}
	s.watches[td.CmdArgs[0].Key] = w
	return ""
}

func (s *script) events(name string) string {
	deliveries, rv, err := s.watches[name].Next(nil, 1000)
	var out strings.Builder
	for _, d := range deliveries {
		pod := corev1.Pod{}
		if err := json.Unmarshal(d.Object.Raw, &pod); err != nil {
			return err.Error()
		}
		fmt.Fprintf(&out, "%s %s at %d", d.Type, d.Object.Key, d.RV)
		if pod.ResourceVersion != strconv.FormatUint(d.RV, 10) {
			fmt.Fprintf(&out, " (its bytes say %s)", pod.ResourceVersion)
		}
		out.WriteString("\n")
	}
	fmt.Fprintf(&out, "up to %d", rv)
	if err != nil {
		fmt.Fprintf(&out, "\n%v", err)
	}
	return out.String()
}

// at N: the snapshot at a version
func (s *script) at(t *testing.T, td *datadriven.TestData) string {
	rv, err := strconv.ParseUint(td.CmdArgs[0].Key, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	v, err := s.c.SnapshotAt(rv)
	if err != nil {
		return "error: " + err.Error()
	}
	out := fmt.Sprintf("%d:", v.RV())
	v.Ascend("", "", func(o *object.Object) bool {
		out += fmt.Sprintf(" %s@%d", o.Key, o.RV)
		return true
	})
	return out
}
