package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// artifact is a manifest that carries one blob and refers to an image.
type artifact struct {
	manifest []byte
	blob     v1.Layer
}

func newArtifact(kind types.MediaType, blob []byte, subject *v1.Descriptor, date time.Time) (v1.Image, error) {
	l := static.NewLayer(blob, kind)
	of, err := partial.Descriptor(l)
	if err != nil {
		return nil, err
	}
	config, _, err := v1.SHA256(bytes.NewReader(noConfig))
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal(v1.Manifest{
		SchemaVersion: 2,
		MediaType:     types.OCIManifestSchema1,
		ArtifactType:  string(kind),
		Config:        v1.Descriptor{MediaType: "application/vnd.oci.empty.v1+json", Size: int64(len(noConfig)), Digest: config},
		Layers:        []v1.Descriptor{{MediaType: kind, Size: of.Size, Digest: of.Digest}},
		Subject:       subject,
		Annotations:   map[string]string{"org.opencontainers.image.created": date.Format(time.RFC3339)},
	})
	if err != nil {
		return nil, err
	}
	return partial.CompressedToImage(artifact{manifest, l})
}

// noConfig is an empty configuration.
var noConfig = []byte("{}")

// RawConfigFile implements partial.CompressedImageCore.
func (a artifact) RawConfigFile() ([]byte, error) { return noConfig, nil }

// MediaType implements partial.CompressedImageCore.
func (a artifact) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

// RawManifest implements partial.CompressedImageCore.
func (a artifact) RawManifest() ([]byte, error) { return a.manifest, nil }

// LayerByDigest implements partial.CompressedImageCore.
func (a artifact) LayerByDigest(h v1.Hash) (partial.CompressedLayer, error) {
	if d, err := a.blob.Digest(); err != nil || d != h {
		return nil, fmt.Errorf("no blob %s: %w", h, err)
	}
	return a.blob, nil
}
