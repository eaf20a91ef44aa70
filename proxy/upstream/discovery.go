package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// acceptDiscovery requests the aggregated form, which kube-apiserver has since 1.30; older ones
	// respond in another.
	acceptDiscovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
	// maxDiscovery bounds one discovery document: those of large clusters have a few megabytes.
	maxDiscovery = 64 << 20
)

// DiscoveryDocument reads the aggregated discovery document at a path, /api or /apis, and its ETag.
// The document is nil if it still has the given ETag, which may be "", and empty if there is none.
func (c *Client) DiscoveryDocument(ctx context.Context, path, etag string) (*apidiscoveryv2.APIGroupDiscoveryList, string, error) {
	a, err := c.get(ctx, &call{purpose: forDiscovery, rt: c.own.shared, path: path, accept: acceptDiscovery, compress: true, etag: etag})
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = a.Close() }()
	list, now := &apidiscoveryv2.APIGroupDiscoveryList{}, a.Header.Get("Etag")
	switch {
	case a.StatusCode == http.StatusNotModified && etag != "":
		return nil, etag, nil
	case a.StatusCode == http.StatusNotFound:
		return list, now, nil // a server with only the other document
	case a.StatusCode != http.StatusOK:
		return nil, "", a.rejection("get", schema.GroupResource{})
	case !isAggregated(a.Header.Get("Content-Type")):
		return nil, "", fmt.Errorf("discovery document %s: the server does not have the aggregated form of Kubernetes 1.30", path)
	}
	body, err := a.decoded()
	if err == nil {
		err = json.NewDecoder(io.LimitReader(body, maxDiscovery)).Decode(list)
	}
	if err != nil {
		return nil, "", fmt.Errorf("discovery document %s: %w", path, err)
	}
	return list, now, nil
}

func isAggregated(contentType string) bool {
	_, params, err := mime.ParseMediaType(contentType)
	return err == nil && params["as"] == "APIGroupDiscoveryList" && params["v"] == "v2"
}

// Version returns the last body of the upstream's /version, nil before the first. It must not be
// modified.
func (c *Client) Version() []byte {
	if version := c.version.Load(); version != nil {
		return *version
	}
	return nil
}
