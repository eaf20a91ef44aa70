package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/watchmux/watchtest"
)

// A change is one revision of the store: a pod as it was before and after.
type change struct {
	rv            uint64
	before, after *corev1.Pod // nil: not there
}

// podHistory reads every change of pods after a revision up to another from etcd: what nobody can have missed or
// reordered.
func podHistory(ctx context.Context, from, to int64) ([]change, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	body, err := json.Marshal(map[string]any{"create_request": map[string]any{
		"key":            base64.StdEncoding.EncodeToString([]byte("/registry/")),
		"range_end":      base64.StdEncoding.EncodeToString([]byte("/registry0")),
		"start_revision": strconv.FormatInt(from+1, 10),
		"prev_kv":        true,
		// Fragments keep an answer small enough for the gateway of etcd.
		"fragment": true,
	}})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, kube.EtcdURL()+"/v3/watch", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	var out []change
	for d := json.NewDecoder(resp.Body); ; {
		var message etcdWatchMessage
		if err := d.Decode(&message); err != nil {
			return nil, fmt.Errorf("history: %w", err)
		}
		if message.Result.Canceled {
			return nil, fmt.Errorf("history: etcd ended the watch: %s", message.Result.Reason)
		}
		for _, e := range message.Result.Events {
			// Any write ends the wait for the last revision, a pod or not.
			if e.KV.Revision > to {
				return out, nil
			}
			if key, err := base64.StdEncoding.DecodeString(e.KV.Key); err != nil {
				return nil, err
			} else if strings.HasPrefix(string(key), "/registry/pods/") {
				c, err := e.change()
				if err != nil {
					return nil, err
				}
				out = append(out, c)
			}
			if e.KV.Revision == to {
				return out, nil
			}
		}
	}
}

type etcdWatchMessage struct {
	Result struct {
		Canceled bool        `json:"canceled"`
		Reason   string      `json:"cancel_reason"`
		Events   []etcdEvent `json:"events"`
	} `json:"result"`
}

type etcdEvent struct {
	Type     string    `json:"type"` // PUT is the default and left out
	KV       etcdValue `json:"kv"`
	Previous etcdValue `json:"prev_kv"`
}

type etcdValue struct {
	Key      string `json:"key"`
	Value    []byte `json:"value"`
	Revision int64  `json:"mod_revision,string"`
}

func (e etcdEvent) change() (c change, err error) {
	c.rv = uint64(e.KV.Revision)
	if len(e.Previous.Value) > 0 {
		if c.before, err = decodePod(e.Previous.Value); err != nil {
			return c, err
		}
	}
	if e.Type != "DELETE" {
		c.after, err = decodePod(e.KV.Value)
	}
	return c, err
}

func decodePod(stored []byte) (*corev1.Pod, error) {
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(stored, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return nil, fmt.Errorf("history: a %T below /registry/pods", obj)
	}
	return pod, nil
}

// truth is what an unbroken watch of the selected pods sends, from a version at which there was no pod.
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
	if !slices.IsSortedFunc(out.Events, func(a, b watchtest.WireEvent) int { return int(a.RV) - int(b.RV) }) {
		panic("etcd's history is not in order")
	}
	return out
}

func podMeta(c change) *metav1.ObjectMeta {
	if c.after != nil {
		return &c.after.ObjectMeta
	}
	return &c.before.ObjectMeta
}
