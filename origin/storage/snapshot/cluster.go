package snapshot

import (
	"bytes"
	"context"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kubeweir/kubeweir/origin/storage"
)

// ClusterUID returns the UID of the namespace kube-system, "" if there is none. prefix begins all keys.
func ClusterUID(ctx context.Context, engine storage.Engine, prefix string) (string, error) {
	key := strings.TrimSuffix(prefix, "/") + "/namespaces/kube-system"
	res, err := engine.Range(ctx, storage.RangeOptions{Prefix: key, Exact: true})
	if err != nil || len(res.KVs) == 0 {
		return "", err
	}
	return NamespaceUID(res.KVs[0].Value), nil
}

// NamespaceUID returns the UID of a Namespace as Kubernetes stores it, "" if it has none or value is
// something else.
func NamespaceUID(value []byte) string {
	message, found := bytes.CutPrefix(value, []byte("k8s\x00"))
	if !found {
		return ""
	}
	// runtime.Unknown.raw, Namespace.metadata, ObjectMeta.uid
	for _, number := range []protowire.Number{2, 1, 5} {
		message = field(message, number)
	}
	return string(message)
}

// field returns the first field of bytes with a number, nil if there is none.
func field(message []byte, number protowire.Number) []byte {
	for len(message) > 0 {
		n, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			return nil
		}
		message = message[size:]
		if n == number && kind == protowire.BytesType {
			value, size := protowire.ConsumeBytes(message)
			if size < 0 {
				return nil
			}
			return value
		}
		if size = protowire.ConsumeFieldValue(n, kind, message); size < 0 {
			return nil
		}
		message = message[size:]
	}
	return nil
}
