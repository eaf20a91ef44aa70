package visible

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

// oracle queries kube-apiserver itself.
type oracle struct {
	*client
	namespaces []string // all namespaces of the cluster
}

// keys returns the keys of a list. The user must be allowed to list.
func (o *oracle) keys(ctx context.Context, who http.Header, path string) ([]string, error) {
	resp, body, err := o.get(ctx, path, who)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s: %.300s", path, resp.Status, body)
	}
	var list map[string]any
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, err
	}
	return keysOf(list)
}

// allows reports whether a user may get, list or watch a path.
func (o *oracle) allows(ctx context.Context, u user, path string) (bool, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends a watch, too
	resp, err := o.open(ctx, path, u.header(false))
	if err != nil {
		return false, err
	}
	defer func() { _ = resp.Body.Close() }()
	switch resp.StatusCode {
	case http.StatusOK, http.StatusNotFound: // of a Namespace that does not exist
		return true, nil
	case http.StatusForbidden:
		return false, nil
	}
	return false, fmt.Errorf("%s: kube-apiserver: %s", path, resp.Status)
}
