//go:build linux

package kubelet

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// TestGateway runs the first commands of the README and those that Helm then prints, as written.
// The pods survive a crash, a new configuration, and an invalid one. Watches through a terminating
// pod end cleanly.
func TestGateway(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	namespace(t, "kubeweir", "restricted")
	notes := s.enter(line(t, "README.md", "helm install "))
	if out := s.follow(notes); !strings.Contains(out, "kubeweir-") || !strings.Contains(out, "Running") {
		t.Errorf("the last command of the notes printed\n%s", out)
	}
	found := ready(t, "kubeweir", 2)
	if out := s.enter("kubectl -n kubeweir logs deployment/kubeweir"); !strings.Contains(out, "kubeweir: ready on https://[::]:8443") {
		t.Errorf("the log is\n%s", out)
	}
	stop := s.forward(line(t, "deploy/kustomize/README.md", "kubectl -n kubeweir port-forward deploy/kubeweir 9444"))
	if page := get(t, "http://localhost:9444/"); !strings.Contains(page, "<html") {
		t.Errorf("the console is\n%s", page)
	}
	stop()

	t.Run("crash", func(t *testing.T) { crash(t, s.in(t), found[0].Name) })
	t.Run("upgrade", func(t *testing.T) { upgrade(t, s.in(t)) })
	t.Run("drain", func(t *testing.T) { drain(t, s.in(t)) })
}

// crash checks that the kubelet restarts a killed container and that its previous log is available.
func crash(t *testing.T, s *session, pod string) {
	must(t, engine.Kill("kubeweir", pod, "kubeweir"))
	eventually(t, func() error {
		p, err := clients.CoreV1().Pods("kubeweir").Get(t.Context(), pod, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if status := p.Status.ContainerStatuses[0]; status.RestartCount != 1 || !status.Ready {
			return fmt.Errorf("%+v", status)
		}
		return nil
	})
	s.reads("kubectl -n kubeweir describe pod "+pod, "Exit Code:    137", "Restart Count:  1")
	s.reads("kubectl -n kubeweir logs --previous "+pod, "kubeweir: ready on ")
}

// upgrade checks that a changed configuration replaces the pods and that an invalid one leaves the
// running pods alone.
func upgrade(t *testing.T, s *session) {
	const again = "helm upgrade kubeweir deploy/charts/kubeweir -n kubeweir --reuse-values "
	s.enter(again + "--set config.log.format=json")
	s.enter("kubectl -n kubeweir rollout status deployment/kubeweir")
	s.reads("kubectl -n kubeweir logs deployment/kubeweir", `{"time":"`)
	before := ready(t, "kubeweir", 2)

	s.enter(again + "--set 'extraArgs={--consistensy=strict}'")
	eventually(t, func() error {
		if n := len(pods(t, "kubeweir")); n != 3 {
			return fmt.Errorf("%d pods", n)
		}
		return nil
	})
	s.reads("kubectl -n kubeweir describe pods --show-events", "kubeweir: --consistensy is not a flag; did you mean --consistency?", "Exit Code:    2")
	s.reads("kubectl -n kubeweir get deployment kubeweir -o wide", "2/2     1 ")
	s.enter("helm rollback kubeweir -n kubeweir")
	after := ready(t, "kubeweir", 2)
	for i := range before {
		if before[i].UID != after[i].UID {
			t.Errorf("an invalid configuration replaced %s", before[i].Name)
		}
	}
}

// drain checks that a deleted pod still responds while it is removed from the Service's endpoints,
// ends watches without an error event, and exits by itself long before it would be killed.
func drain(t *testing.T, s *session) {
	pod := ready(t, "kubeweir", 2)[0]
	ca, err := clients.CoreV1().ConfigMaps("kubeweir").Get(t.Context(), "kubeweir-ca", metav1.GetOptions{})
	must(t, err)
	through, err := kubernetes.NewForConfig(&rest.Config{Host: "https://" + pod.Status.PodIP + ":8443", BearerToken: kube.AdminToken(), QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: []byte(ca.Data["ca.crt"]), ServerName: "kubeweir.kubeweir.svc"}})
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	w, err := through.CoreV1().Namespaces().Watch(ctx, metav1.ListOptions{})
	must(t, err)
	began := time.Now()
	s.enter("kubectl -n kubeweir delete pod --wait=false " + pod.Name)
	if _, err := through.CoreV1().Namespaces().List(ctx, metav1.ListOptions{ResourceVersion: "0"}); err != nil {
		t.Errorf("a terminating pod responds: %v", err)
	}
	for e := range w.ResultChan() {
		if e.Type == watch.Error {
			t.Errorf("the watch ended with %+v", e.Object)
		}
	}
	must(t, ctx.Err())
	eventually(t, func() error {
		if codes := engine.Ended("kubeweir", pod.Name, "kubeweir"); len(codes) != 1 || codes[0] != 0 {
			return fmt.Errorf("the exit codes are %v", codes)
		}
		return nil
	})
	if took := time.Since(began); took < 5*time.Second || took > 40*time.Second {
		t.Errorf("it took %s, with a preStop of 5s and a grace of 45s", took)
	}
	ready(t, "kubeweir", 2)
}
