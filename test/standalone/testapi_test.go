package standalone

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/realkube/testbed"
)

// testAPI is a server with --test-api.
type testAPI struct {
	server *realkube.Standalone
	client *kubernetes.Clientset
}

func startTestAPI(t *testing.T) *testAPI {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), realkube.StartTime)
	defer cancel()
	server, err := realkube.StartStandalone(ctx, realkube.StandaloneOptions{
		Dir: t.TempDir(), ExtraArgs: []string{"--test-api", "--in-memory", "--disable-admission-plugins=ServiceAccount"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	cfg, err := server.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS = -1
	return &testAPI{server, kubernetes.NewForConfigOrDie(cfg)}
}

// request sends a request to the test API and returns the response's status and body.
func (a *testAPI) request(t *testing.T, method, path, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, a.server.AdminURL()+"/kubeweir/v1/"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func (a *testAPI) must(t *testing.T, method, path, body string) {
	t.Helper()
	if status, text := a.request(t, method, path, body); status != http.StatusOK {
		t.Fatalf("%s %s: %d %s", method, path, status, text)
	}
}

func (a *testAPI) create(t *testing.T, name string) *corev1.ConfigMap {
	t.Helper()
	object, err := a.client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return object
}

func TestResetAndSnapshots(t *testing.T) {
	a := startTestAPI(t)
	ctx, maps := t.Context(), a.client.CoreV1().ConfigMaps("default")
	if _, err := a.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	first := a.create(t, "object")
	for i := range 300 {
		a.create(t, fmt.Sprint("many-", i))
	}
	began := time.Now()
	a.must(t, "POST", "reset", "")
	t.Logf("302 objects dropped in %s", time.Since(began).Round(time.Millisecond))
	if list, err := maps.List(ctx, metav1.ListOptions{}); err != nil || len(list.Items) != 0 {
		t.Errorf("after reset: %v, %v", list.Items, err)
	}
	if _, err := a.client.CoreV1().Namespaces().Get(ctx, "team", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after reset: %v", err)
	}
	if _, err := a.client.RbacV1().ClusterRoles().Get(ctx, "cluster-admin", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	second := a.create(t, "object")
	if second.UID == first.UID {
		t.Error("the same UID after reset")
	}

	pods := a.client.CoreV1().Pods("default")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}}}
	if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	a.must(t, "PUT", "snapshots/one", "")
	if err := pods.Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Target: corev1.ObjectReference{Name: "node"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	bound, err := pods.Get(ctx, "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	events, err := pods.Watch(ctx, metav1.ListOptions{ResourceVersion: bound.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	second.Data = map[string]string{"color": "blue"}
	if _, err := maps.Update(ctx, second, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	a.create(t, "other")
	a.must(t, "POST", "snapshots/one/restore", "")
	list, err := maps.List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].UID != second.UID || len(list.Items[0].Data) != 0 {
		t.Errorf("after restore: %v, %v", list.Items, err)
	}
	if list.Items[0].ResourceVersion == first.ResourceVersion {
		t.Error("versions go back")
	}
	for _, want := range []watch.EventType{watch.Deleted, watch.Added} {
		if event := <-events.ResultChan(); event.Type != want {
			t.Errorf("of the Pod that was bound: %s, want %s", event.Type, want)
		}
	}
	a.must(t, "DELETE", "snapshots/one", "")
	if status, text := a.request(t, "POST", "snapshots/one/restore", ""); status != http.StatusNotFound {
		t.Errorf("a deleted snapshot: %d %s", status, text)
	}
}

// TestResetEndsWatches checks that clients which were there before a reset list again.
func TestResetEndsWatches(t *testing.T) {
	a := startTestAPI(t)
	ctx := t.Context()
	before := a.create(t, "object")
	cfg, err := a.server.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	inJSON := rest.CopyConfig(cfg)
	inJSON.ContentType = "application/json"
	var watches []watch.Interface
	for _, client := range []kubernetes.Interface{a.client, kubernetes.NewForConfigOrDie(inJSON)} {
		for _, opts := range []metav1.ListOptions{{ResourceVersion: before.ResourceVersion}, {ResourceVersion: before.ResourceVersion, FieldSelector: "metadata.name=object"}} {
			w, err := client.CoreV1().ConfigMaps("default").Watch(ctx, opts)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			watches = append(watches, w)
		}
	}
	a.must(t, "POST", "reset", "")
	for i, w := range watches {
		last := watch.Event{}
		for event := range w.ResultChan() {
			last = event
		}
		if err := apierrors.FromObject(last.Object); last.Type != watch.Error || !apierrors.IsResourceExpired(err) {
			t.Errorf("watch %d ended with %v", i, last)
		}
	}
	maps := a.client.CoreV1().ConfigMaps("default")
	w, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: before.ResourceVersion})
	var event watch.Event
	if err == nil {
		event = <-w.ResultChan()
		w.Stop()
		err = apierrors.FromObject(event.Object)
	}
	if !apierrors.IsResourceExpired(err) {
		t.Errorf("a watch from before the reset: %v, %+v", err, event)
	}
	if _, err := maps.List(ctx, metav1.ListOptions{ResourceVersion: before.ResourceVersion, ResourceVersionMatch: "Exact"}); !apierrors.IsResourceExpired(err) {
		t.Errorf("a list from before the reset: %v", err)
	}
	list, err := maps.List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil || len(list.Items) != 0 {
		t.Errorf("%v, %v", list.Items, err)
	}
	again, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Stop()
	a.create(t, "object")
	if event := <-again.ResultChan(); event.Type != watch.Added {
		t.Errorf("%v", event)
	}
}

// TestClock checks that an Event expires when the clock is advanced, and that others stay.
func TestClock(t *testing.T) {
	a := startTestAPI(t)
	ctx, events := t.Context(), a.client.CoreV1().Events("default")
	object := a.create(t, "object")
	event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "event"}, InvolvedObject: corev1.ObjectReference{Namespace: "default"}}
	if _, err := events.Create(ctx, event, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	a.must(t, "POST", "clock", `{"advance":"59m"}`)
	if _, err := events.Get(ctx, "event", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	a.must(t, "POST", "clock", `{"advance":"2m"}`)
	if err := testbed.Poll(ctx, time.Minute, func() error {
		if _, err := events.Get(ctx, "event", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the Event does not expire: %w", err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if _, err := a.client.CoreV1().ConfigMaps("default").Get(ctx, object.Name, metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	for _, body := range []string{"", "{}", `{"advance":"-1h"}`, `{"advance":"soon"}`, `{"advance":"1h"}{}`} {
		if status, text := a.request(t, "POST", "clock", body); status != http.StatusBadRequest || !strings.Contains(text, "the clock was not advanced") {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
}

func TestFaults(t *testing.T) {
	a := startTestAPI(t)
	ctx, maps := t.Context(), a.client.CoreV1().ConfigMaps("default")
	object := a.create(t, "object")
	a.must(t, "POST", "faults", `{"verb":"update","resource":"configmaps","code":409,"count":2}`)
	for i := range 3 {
		if _, err := maps.Update(ctx, object, metav1.UpdateOptions{}); apierrors.IsConflict(err) != (i < 2) {
			t.Errorf("update %d: %v", i, err)
		}
	}
	a.must(t, "POST", "faults", `{"verb":"list","resource":"configmaps","delay":"1s"}`)
	began := time.Now()
	if _, err := maps.List(ctx, metav1.ListOptions{ResourceVersion: "0"}); err != nil || time.Since(began) < time.Second {
		t.Errorf("a delayed list: %v after %v", err, time.Since(began))
	}
	if status, text := a.request(t, "POST", "faults", `{"verb":"read","code":409}`); status != http.StatusBadRequest || !strings.Contains(text, `verb must be one of get, list`) {
		t.Errorf("%d %s", status, text)
	}
	if status, text := a.request(t, "POST", "faults", `{"verb":"list","codes":1}`); status != http.StatusBadRequest || !strings.Contains(text, `unknown field "codes"`) {
		t.Errorf("%d %s", status, text)
	}

	w, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: object.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	a.must(t, "POST", "faults", `{"verb":"watch","resource":"configmaps","code":410}`)
	if err := testbed.Poll(ctx, time.Minute, func() error { // until the watch is open at the server
		a.must(t, "POST", "watches/end", "")
		select {
		case event, open := <-w.ResultChan():
			if !open {
				return nil
			}
			return fmt.Errorf("an event: %v", event)
		case <-time.After(100 * time.Millisecond):
			return fmt.Errorf("the watch does not end")
		}
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: object.ResourceVersion}); !apierrors.IsResourceExpired(err) {
		t.Errorf("the resumed watch: %v", err)
	}
	again, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: object.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Stop()
	a.create(t, "new")
	if event := <-again.ResultChan(); event.Type != watch.Added {
		t.Errorf("%v", event)
	}
}

// TestTestAPIIsLocal checks that others than processes of this machine cannot use the test API.
func TestTestAPIIsLocal(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), realkube.StartTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, tools(t).kubeweir, "standalone", "--test-api", "--admin-listen=:0", "--listen=127.0.0.1:0", "--data-dir="+t.TempDir()).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "set --admin-listen to a loopback address") {
		t.Errorf("%s, %v", out, err)
	}
}
