package realkube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// A Change is the effect of one revision of the store on one key.
type Change struct {
	Key      string
	Revision uint64
	// Created means that the key did not exist before, Deleted that it does not exist afterwards.
	Created, Deleted bool
	// Before and After are the values as kube-apiserver stores them. They are nil if there is no
	// value; Before is also nil if the store has compacted it.
	Before, After []byte
}

// History returns every change of keys with a prefix after the revision from up to the revision to,
// in order. It waits until the store reaches the revision to.
func (c *Cluster) History(ctx context.Context, prefix string, from, to uint64) ([]Change, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The watch covers all keys, because any write ends the wait for the last revision.
	create := prefixRange("/registry/")
	create["start_revision"] = strconv.FormatUint(from+1, 10)
	create["prev_kv"] = true
	create["fragment"] = true // messages small enough for etcd's JSON gateway
	body, err := json.Marshal(map[string]any{"create_request": create})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.EtcdURL()+"/v3/watch", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	var out []Change
	for d := json.NewDecoder(resp.Body); ; {
		var message watchMessage
		if err := d.Decode(&message); err != nil {
			return nil, fmt.Errorf("history: %w", err)
		}
		if message.Result.Canceled {
			return nil, fmt.Errorf("history: etcd ended the watch: %s", message.Result.Reason)
		}
		for _, e := range message.Result.Events {
			if e.KV.Modified > to {
				return out, nil
			}
			if n := len(out); n > 0 && out[n-1].Revision > e.KV.Modified {
				return nil, errors.New("history: etcd's events are out of order")
			}
			if strings.HasPrefix(string(e.KV.Key), prefix) {
				out = append(out, e.change())
			}
			if e.KV.Modified == to {
				return out, nil
			}
		}
	}
}

// watchMessage is a message on a watch through etcd's JSON gateway.
type watchMessage struct {
	Result struct {
		Canceled bool         `json:"canceled"`
		Reason   string       `json:"cancel_reason"`
		Events   []watchEvent `json:"events"`
	} `json:"result"`
}

type watchEvent struct {
	Type     string     `json:"type"` // PUT is the default and is omitted
	KV       watchValue `json:"kv"`
	Previous watchValue `json:"prev_kv"`
}

type watchValue struct {
	Key      []byte `json:"key"`
	Value    []byte `json:"value"`
	Created  uint64 `json:"create_revision,string"`
	Modified uint64 `json:"mod_revision,string"`
}

func (e *watchEvent) change() Change {
	deleted := e.Type == "DELETE"
	return Change{
		Key: string(e.KV.Key), Revision: e.KV.Modified,
		Created: !deleted && e.KV.Created == e.KV.Modified, Deleted: deleted,
		Before: e.Previous.Value, After: e.KV.Value,
	}
}
