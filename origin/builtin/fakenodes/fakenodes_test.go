package fakenodes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/apis/core/validation"
)

// run runs n nodes until stop is called.
func run(t *testing.T, client *fake.Clientset, n int) (stop func(), log *bytes.Buffer) {
	t.Helper()
	log = new(bytes.Buffer)
	f, err := newNodes(client, n, nil, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	return func() {
		cancel()
		<-done
		f.Close()
	}, log
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

func getNode(t *testing.T, client *fake.Clientset, name string) *corev1.Node {
	t.Helper()
	node, err := client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return &corev1.Node{}
	}
	return node
}

func isReady(node *corev1.Node) bool {
	return len(node.Status.Conditions) == 4 && node.Status.DaemonEndpoints.KubeletEndpoint.Port != 0
}

// podOn creates a Pod on a node and returns a function that returns it.
func podOn(t *testing.T, client *fake.Clientset, name, node string) (get func() *corev1.Pod) {
	t.Helper()
	pods := client.CoreV1().Pods("default")
	if _, err := pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: corev1.PodSpec{NodeName: node},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return func() *corev1.Pod {
		pod, err := pods.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return pod
	}
}

// TestForeignNode checks that a node that somebody else has created stays as it is.
func TestForeignNode(t *testing.T) {
	client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "fake-node-0"}})
	theirs, ours := podOn(t, client, "theirs", "fake-node-0"), podOn(t, client, "ours", "fake-node-1")
	stop, log := run(t, client, 2)
	eventually(t, "no Pod of the node is running", func() bool { return ours().Status.Phase == corev1.PodRunning })
	stop()
	if node := getNode(t, client, "fake-node-0"); len(node.Status.Conditions) > 0 {
		t.Errorf("%+v", node)
	}
	if pod := theirs(); pod.Status.Phase != "" {
		t.Errorf("%+v", pod.Status)
	}
	if n := strings.Count(log.String(), "fake-node-0"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, log)
	}
}

// TestRestart checks that a restart keeps what others have written to the status of a node.
func TestRestart(t *testing.T) {
	client := fake.NewClientset()
	stop, _ := run(t, client, 1)
	eventually(t, "the node is not ready", func() bool { return isReady(getNode(t, client, "fake-node-0")) })
	stop()
	before := getNode(t, client, "fake-node-0")
	before.Status.Capacity["example.com/gpu"] = resource.MustParse("4")
	if _, err := client.CoreV1().Nodes().UpdateStatus(t.Context(), before, metav1.UpdateOptions{FieldManager: "device-plugin"}); err != nil {
		t.Fatal(err)
	}
	stop, _ = run(t, client, 1)
	defer stop()
	port := before.Status.DaemonEndpoints.KubeletEndpoint.Port
	eventually(t, "the port is not updated", func() bool {
		return getNode(t, client, "fake-node-0").Status.DaemonEndpoints.KubeletEndpoint.Port != port
	})
	if gpu := getNode(t, client, "fake-node-0").Status.Capacity["example.com/gpu"]; gpu.Value() != 4 {
		t.Errorf("%v", gpu)
	}
}

// TestPanic checks that a Pod is simulated after a panic.
func TestPanic(t *testing.T) {
	client, panicked := fake.NewClientset(), false
	client.PrependReactor("update", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		if !panicked {
			panicked = true
			panic("for the test")
		}
		return false, nil, nil
	})
	pod := podOn(t, client, "pod", "fake-node-0")
	stop, _ := run(t, client, 1)
	defer stop()
	eventually(t, "the Pod is not running", func() bool { return pod().Status.Phase == corev1.PodRunning })
}

// TestErrorsAreLogged checks that errors of nodes and of Pods are logged, but not each of them.
func TestErrorsAreLogged(t *testing.T) {
	client, failures := fake.NewClientset(), 0
	client.PrependReactor("update", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		failures++
		return failures <= 3, nil, apierrors.NewInternalError(errors.New("full disk"))
	})
	leases := make(chan bool, 100)
	client.PrependReactor("patch", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		leases <- true
		return true, nil, errors.New("no lease")
	})
	pod := podOn(t, client, "broken", "fake-node-0")
	stop, log := run(t, client, 2)
	eventually(t, "the Pod is not running", func() bool { return pod().Status.Phase == corev1.PodRunning })
	<-leases
	<-leases
	stop()
	for _, want := range []string{"pod=default/broken error=\"Internal error occurred: full disk\"", "error=\"no lease\""} {
		if n := strings.Count(log.String(), want); n != 1 {
			t.Errorf("%s: logged %d times:\n%s", want, n, log)
		}
	}
}

// TestCloseWithoutRun checks that Close ends the queue of nodes that have not run.
func TestCloseWithoutRun(t *testing.T) {
	f, err := newNodes(fake.NewClientset(), 1, nil, slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if f.processNext(t.Context()) {
		t.Error("the queue is open")
	}
}

// TestHostNetwork checks that a Pod with hostNetwork has its node's address, that it shares with others and
// that an EndpointSlice can contain.
func TestHostNetwork(t *testing.T) {
	a := addresses{holders: make(map[netip.Addr][]holder)}
	for range 2 {
		pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "fake-node-300", HostNetwork: true}}
		ip, err := a.allocate(pod)
		if err != nil {
			t.Fatal(err)
		}
		markRunning(pod, ip)
		if s := pod.Status; s.PodIP != "10.245.44.0" || s.HostIP != s.PodIP || s.HostIPs[0].IP != s.PodIP {
			t.Errorf("%+v", s)
		}
		if errs := validation.ValidateEndpointIP(ip, nil); len(errs) > 0 {
			t.Error(errs)
		}
	}
}

// TestAddresses checks that no two Pods share an address until one of them has ended.
func TestAddresses(t *testing.T) {
	ended := make(map[string]bool)
	a := addresses{hasEnded: func(h holder) bool { return ended[h.name.Name] }, holders: make(map[netip.Addr][]holder)}
	pod := func(node, i int) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%d-%d", node, i)}, Spec: corev1.PodSpec{NodeName: fmt.Sprint(prefix, node)}}
	}
	restored := pod(0, 1000)
	restored.Status.PodIP = "10.244.0.7"
	a.hold(restored)
	owners := map[string]string{restored.Status.PodIP: restored.Name}
	for _, node := range []int{0, 1, 255, 256, 999, maxNodes - 1} {
		for i := range lastAddress {
			p := pod(node, i)
			ip, err := a.allocate(p)
			if node == 0 && i == lastAddress-1 {
				if err == nil {
					t.Errorf("%s: more Pods than addresses", ip)
				}
				continue
			}
			if owner := owners[ip]; err != nil || owner != "" {
				t.Fatalf("%s: %s of %s, %v", p.Name, ip, owner, err)
			}
			if again, err := a.allocate(p); err != nil || again != ip {
				t.Fatalf("%s, then %s, %v", ip, again, err)
			}
			owners[ip] = p.Name
		}
	}
	ended["0-9"] = true
	if ip, err := a.allocate(pod(0, 2000)); err != nil || owners[ip] != "0-9" {
		t.Errorf("%s of %s, %v", ip, owners[ip], err)
	}
	for name, want := range map[string]int{"fake-node-0": 0, "fake-node-1023": 1023, "fake-node-1024": -1, "fake-node-01": -1, "fake-node-": -1, "node-1": -1} {
		if got := nodeIndex(name); got != want {
			t.Errorf("%s: %d", name, got)
		}
	}
}
