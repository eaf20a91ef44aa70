package e2e

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/watchmux/watchtest"
)

// A change is one revision of a pod: its state before and after.
type change struct {
	rv            uint64
	before, after *corev1.Pod // nil if it did not exist
}

// podHistory returns every change of pods between two revisions. It reads them from etcd, whose
// history is complete and in order.
func podHistory(ctx context.Context, from, to int64) ([]change, error) {
	history, err := kube.History(ctx, "/registry/pods/", uint64(from), uint64(to))
	if err != nil {
		return nil, err
	}
	var out []change
	for _, h := range history {
		c := change{rv: h.Revision}
		if h.Before != nil {
			if c.before, err = decodePod(h.Before); err != nil {
				return nil, err
			}
		}
		if !h.Deleted {
			if c.after, err = decodePod(h.After); err != nil {
				return nil, err
			}
		}
		out = append(out, c)
	}
	return out, nil
}

func decodePod(stored []byte) (*corev1.Pod, error) {
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(stored, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return nil, fmt.Errorf("history: unexpected %T below /registry/pods", obj)
	}
	return pod, nil
}

// truth returns the events that an uninterrupted watch of the selected pods receives, from a
// version at which no pods existed.
func truth(from uint64, history []change, selected func(*corev1.Pod) bool) watchtest.Truth {
	out := watchtest.Truth{From: from, Complete: true}
	for _, c := range history {
		was := c.before != nil && selected(c.before)
		is := c.after != nil && selected(c.after)
		e := watchtest.WireEvent{RV: c.rv}
		switch {
		case is && was:
			e.Type = api.Modified
		case is:
			e.Type = api.Added
		case was:
			e.Type = api.Deleted
		default:
			continue
		}
		meta := podMeta(c)
		e.Key = objectKey(meta.Namespace, meta.Name)
		out.Events = append(out.Events, e)
	}
	return out
}

func podMeta(c change) *metav1.ObjectMeta {
	if c.after != nil {
		return &c.after.ObjectMeta
	}
	return &c.before.ObjectMeta
}
