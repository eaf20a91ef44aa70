package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"io"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// userID is the user and the group of the image's process.
const userID = 65532

// node is a file or, with a slash at the end of its name, a folder.
type node struct {
	name  string
	mode  int64
	owner int
	data  []byte
}

// base returns everything in the image except the program. There is no shell and no /tmp: kubeweir
// writes only to mounts. /var/lib/kubeweir is the only folder of its user, so that this user also
// owns a volume that Docker creates there.
func base() []node {
	return []node{
		{name: "etc/", mode: 0o755},
		{name: "etc/group", mode: 0o644, data: []byte("root:x:0:\nkubeweir:x:65532:\n")},
		{name: "etc/passwd", mode: 0o644, data: []byte("root:x:0:0:root:/:/sbin/nologin\n" +
			"kubeweir:x:65532:65532:kubeweir:/var/lib/kubeweir:/sbin/nologin\n")},
		{name: "etc/ssl/", mode: 0o755},
		{name: "etc/ssl/certs/", mode: 0o755},
		{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, data: roots()},
		{name: "var/", mode: 0o755},
		{name: "var/lib/", mode: 0o755},
		{name: "var/lib/kubeweir/", mode: 0o700, owner: userID},
	}
}

// roots returns the certificate authorities that Mozilla trusts, as PEM. They come from a Go
// module, so that go.sum pins them, whatever machine builds, and that they are updated like every
// other dependency. Authorities that are trusted only under a condition that a file cannot express
// are left out.
func roots() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // writing to a Buffer does not fail
		}
	}
	return out.Bytes()
}

// layer returns a compressed image layer with the nodes in their order.
func layer(nodes []node, date time.Time) (v1.Layer, error) {
	var out bytes.Buffer
	archive := tar.NewWriter(&out)
	for _, n := range nodes {
		header := &tar.Header{Name: n.name, Mode: n.mode, Uid: n.owner, Gid: n.owner, Size: int64(len(n.data)), ModTime: date}
		if err := archive.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := archive.Write(n.data); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	compressed, err := gzipped(out.Bytes())
	if err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(compressed)), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
}

// programLayer returns the layer with only the program and its licenses, so that clients download
// only this layer for a new version while the roots are the same.
func (r *release) programLayer(p program) (v1.Layer, error) {
	data, err := os.ReadFile(p.path)
	if err != nil {
		return nil, err
	}
	ours, err := os.ReadFile(filepath.Join(r.source, "LICENSE"))
	if err != nil {
		return nil, err
	}
	others, err := r.licenses(p.platform)
	if err != nil {
		return nil, err
	}
	return layer([]node{
		{name: "kubeweir", mode: 0o755, data: data},
		{name: "licenses/", mode: 0o755},
		{name: "licenses/LICENSE", mode: 0o644, data: ours},
		{name: "licenses/THIRD_PARTY_LICENSES", mode: 0o644, data: notices(others)},
	}, r.date)
}
