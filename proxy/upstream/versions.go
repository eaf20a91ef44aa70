package upstream

import (
	"context"
	"fmt"

	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/encoding"
	"github.com/kubeweir/kubeweir/internal/encoding/protobuf"
)

// ListVersions implements source.VersionLister. It requests the objects' metadata, which
// kube-apiserver encodes without the objects, in protobuf, which custom resources have for their
// metadata, too. For 5,000 pods that takes a quarter of the CPU time of a list in JSON, half of one
// in protobuf.
func (s *Source) ListVersions(ctx context.Context, res *source.Resource, opts source.ListOptions, visit func(key string, rv uint64) error) (source.ListMeta, error) {
	const accept = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	a, err := s.get(ctx, res, &call{purpose: forVersionList, accept: accept, path: collectionPath(res, opts.Namespace), query: listQuery(&opts)})
	if err != nil {
		return source.ListMeta{}, err
	}
	defer func() { _ = a.Close() }()
	body, err := a.decoded()
	if err != nil {
		return source.ListMeta{}, err
	}
	meta, err := protobuf.ReadVersions(body, s.c.limits.MaxObjectBytes, func(ref protobuf.Reference) error {
		key, rv, err := referenced(res, ref)
		if err != nil {
			return err
		}
		return visit(key, rv)
	})
	if err != nil {
		return source.ListMeta{}, fmt.Errorf("metadata of %s: %w", res.GroupResource(), err)
	}
	if meta.Kind != encoding.PartialListKind {
		return source.ListMeta{}, fmt.Errorf("%w: asked for metadata of %s, the upstream sends a %s", source.ErrUnsupported, res.GroupResource(), meta.Kind)
	}
	out, err := listMeta(res, a, &meta)
	out.Bytes = a.body.Count
	return out, err
}

func referenced(res *source.Resource, ref protobuf.Reference) (key string, rv uint64, err error) {
	rv, err = api.ParseResourceVersion(string(ref.ResourceVersion))
	if err != nil || rv == 0 {
		return "", 0, fmt.Errorf("%s has the resourceVersion %q", ref.Name, ref.ResourceVersion)
	}
	if !res.Namespaced {
		return string(ref.Name), rv, nil
	}
	return string(ref.Namespace) + "/" + string(ref.Name), rv, nil
}
