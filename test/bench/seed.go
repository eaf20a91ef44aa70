package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	seedNamespaces = 20
	seedNodes      = 200
	seedShards     = 50 // values of the label "shard"
	seedWorkers    = 8
)

// podLabel is a label whose value is unique for each pod.
const podLabel = "bench-pod"

func namespaceName(i int) string { return fmt.Sprintf("team-%02d", i%seedNamespaces) }

// nodeName spreads a node's pods over namespaces.
func nodeName(i int) string {
	return fmt.Sprintf("node-%03d", (i%seedNodes+i/seedNodes)%seedNodes)
}

func podName(i int) string { return fmt.Sprintf("checkout-7d4b9c6f58-%05d", i) }

func podPath(i int) string {
	return "/api/v1/namespaces/" + namespaceName(i) + "/pods/" + podName(i)
}

// seed fills the cluster with n pods, written in the way of a cluster's components so that
// managedFields are realistic: kube-controller-manager creates them, then the kubelet writes their
// status.
func seed(ctx context.Context, cfg *rest.Config, n int) error {
	creator, err := seedClient(cfg, "kube-controller-manager")
	if err != nil {
		return err
	}
	kubelet, err := seedClient(cfg, "kubelet")
	if err != nil {
		return err
	}
	for i := range seedNamespaces {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceName(i)}}
		if _, err := creator.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, seedWorkers)
	for w := range errs {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && errs[w] == nil; i = int(next.Add(1)) - 1 {
				errs[w] = seedPod(ctx, creator, kubelet, i)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func seedClient(cfg *rest.Config, userAgent string) (*kubernetes.Clientset, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent = userAgent
	cfg.ContentType = protobufType
	return kubernetes.NewForConfig(cfg)
}

func seedPod(ctx context.Context, creator, kubelet *kubernetes.Clientset, i int) error {
	ns := namespaceName(i)
	if _, err := creator.CoreV1().Pods(ns).Create(ctx, newPod(i), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create pod %d: %w", i, err)
	}
	patch, err := json.Marshal(map[string]any{"status": newStatus(i)})
	if err != nil {
		return err
	}
	_, err = kubelet.CoreV1().Pods(ns).Patch(ctx, podName(i), types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("patch status of pod %d: %w", i, err)
	}
	return nil
}
