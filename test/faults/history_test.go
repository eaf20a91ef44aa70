package faults

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/watchmux/watchtest"
)

// history is what happened to the ConfigMaps of a namespace between two revisions, as etcd says, which nobody can have
// missed or reordered.
func history(ctx context.Context, kube *realkube.Cluster, namespace string, from, to uint64) (watchtest.Truth, error) {
	truth := watchtest.Truth{From: from}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	encode := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	body, err := json.Marshal(map[string]any{"create_request": map[string]any{
		"key": encode("/registry/"), "range_end": encode("/registry0"),
		"start_revision": strconv.FormatUint(from+1, 10), "fragment": true,
	}})
	if err != nil {
		return truth, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, kube.EtcdURL()+"/v3/watch", bytes.NewReader(body))
	if err != nil {
		return truth, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return truth, fmt.Errorf("history: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	prefix := "/registry/configmaps/" + namespace + "/"
	for d := json.NewDecoder(resp.Body); ; {
		var message etcdMessage
		if err := d.Decode(&message); err != nil {
			return truth, fmt.Errorf("history: %w", err)
		}
		if message.Result.Canceled {
			return truth, fmt.Errorf("history: etcd ended the watch: %s", message.Result.Reason)
		}
		for _, e := range message.Result.Events {
			if e.KV.Modified > to {
				return truth, nil
			}
			if name, ok := strings.CutPrefix(string(e.KV.Key), prefix); ok {
				truth.Events = append(truth.Events, e.wire(namespace+"/"+name))
			}
			if e.KV.Modified == to {
				return truth, nil
			}
		}
	}
}

// etcdMessage is what etcd says on a watch through its JSON gateway.
type etcdMessage struct {
	Result struct {
		Canceled bool        `json:"canceled"`
		Reason   string      `json:"cancel_reason"`
		Events   []etcdEvent `json:"events"`
	} `json:"result"`
}

type etcdEvent struct {
	Type string `json:"type"` // PUT is the default and left out
	KV   struct {
		Key      []byte `json:"key"`
		Created  uint64 `json:"create_revision,string"`
		Modified uint64 `json:"mod_revision,string"`
	} `json:"kv"`
}

func (e etcdEvent) wire(key string) watchtest.WireEvent {
	out := watchtest.WireEvent{Type: api.Modified, Key: key, RV: e.KV.Modified}
	switch {
	case e.Type == "DELETE":
		out.Type = api.Deleted
	case e.KV.Created == e.KV.Modified:
		out.Type = api.Added
	}
	return out
}
