package main

import (
	"fmt"
	"os"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

const (
	homepage   = "https://github.com/kubeweir/kubeweir"
	repository = "ghcr.io/kubeweir/kubeweir"
	about      = "Caching gateway for the Kubernetes API, and a Kubernetes API server without a cluster."
	license    = "Apache-2.0"
)

// image is the image of one platform with the attached list of its contents.
type image struct {
	program
	v1.Image
	contents v1.Image
}

// image creates the images: an OCI layout of all, an archive for docker load of each, and the lists
// of their contents.
func (r *release) image() error {
	platforms := r.linux()
	if len(platforms) == 0 {
		return fmt.Errorf("image needs a platform linux/amd64 or linux/arm64, got only %v", r.platforms)
	}
	if r.push != "" {
		// Check this before spending minutes.
		if _, err := pushTag(r.push); err != nil {
			return err
		}
	}
	programs, err := r.buildAll(platforms)
	if err != nil {
		return err
	}
	roots, err := layer(base(), r.date)
	if err != nil {
		return err
	}
	var images []image
	for _, p := range programs {
		i, err := r.platformImage(p, roots)
		if err != nil {
			return fmt.Errorf("image for %s: %w", p.platform, err)
		}
		images = append(images, i)
	}
	index := r.index(images)
	if err := r.writeLayout(index, images); err != nil {
		return err
	}
	if err := r.checksums(); err != nil {
		return err
	}
	if r.push == "" {
		return nil
	}
	return pushImages(r.push, index, images)
}

// labels returns the labels of the image, which are also the annotations of its manifest and of the
// index.
func (r *release) labels() map[string]string {
	labels := map[string]string{
		"org.opencontainers.image.title":         "kubeweir",
		"org.opencontainers.image.description":   about,
		"org.opencontainers.image.version":       r.version,
		"org.opencontainers.image.revision":      r.commit,
		"org.opencontainers.image.created":       r.date.Format(time.RFC3339),
		"org.opencontainers.image.source":        homepage,
		"org.opencontainers.image.url":           homepage,
		"org.opencontainers.image.documentation": homepage + "#readme",
		"org.opencontainers.image.licenses":      license,
	}
	if r.commit == "" { // built from an archive of the source
		delete(labels, "org.opencontainers.image.revision")
	}
	return labels
}

func (r *release) platformImage(p program, roots v1.Layer) (image, error) {
	ours, err := r.programLayer(p)
	if err != nil {
		return image{}, err
	}
	created := v1.Time{Time: r.date}
	history := func(of string) v1.History { return v1.History{Created: created, CreatedBy: of} }
	img, err := mutate.Append(empty.Image,
		mutate.Addendum{Layer: roots, History: history("certificate authorities, users"), MediaType: types.OCILayer},
		mutate.Addendum{Layer: ours, History: history("kubeweir " + r.version), MediaType: types.OCILayer})
	if err != nil {
		return image{}, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return image{}, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = p.os, p.arch, created
	config.Config = v1.Config{
		User:       fmt.Sprintf("%d:%d", userID, userID),
		Entrypoint: []string{"/kubeweir"},
		WorkingDir: "/",
		Labels:     r.labels(),
		// The ports of gateway and standalone, of each first the API.
		ExposedPorts: map[string]struct{}{"8443/tcp": {}, "9444/tcp": {}, "6443/tcp": {}, "9443/tcp": {}},
	}
	if img, err = mutate.ConfigFile(img, config); err != nil {
		return image{}, err
	}
	img = mutate.ConfigMediaType(mutate.MediaType(img, types.OCIManifestSchema1), types.OCIConfigJSON)
	img = mutate.Annotations(img, r.labels()).(v1.Image)
	contents, err := r.attachContents(p, img)
	return image{p, img, contents}, err
}

// attachContents writes the list of an image's contents to a file, and attaches it to the image as
// an artifact.
func (r *release) attachContents(p program, img v1.Image) (v1.Image, error) {
	bom, err := r.contents(p, caRoots())
	if err != nil {
		return nil, err
	}
	if err := writeFile(r.path(p.os+"_"+p.arch+".image.cdx.json"), bom); err != nil {
		return nil, err
	}
	subject, err := partial.Descriptor(img)
	if err != nil {
		return nil, err
	}
	return newArtifact("application/vnd.cyclonedx+json", bom, &v1.Descriptor{
		MediaType: subject.MediaType, Digest: subject.Digest, Size: subject.Size,
	}, r.date)
}

// index returns the index of the images of all platforms.
func (r *release) index(images []image) v1.ImageIndex {
	var all []mutate.IndexAddendum
	for _, i := range images {
		all = append(all, mutate.IndexAddendum{Add: i.Image, Descriptor: v1.Descriptor{
			MediaType: types.OCIManifestSchema1,
			Platform:  &v1.Platform{OS: i.os, Architecture: i.arch},
		}})
	}
	return mutate.Annotations(mutate.AppendManifests(empty.Index, all...), r.labels()).(v1.ImageIndex)
}

// writeLayout writes an OCI layout and the archives, and validates the layout by reading it.
func (r *release) writeLayout(index v1.ImageIndex, images []image) error {
	dir := r.path("image")
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	name := map[string]string{"org.opencontainers.image.ref.name": r.version}
	if err := path.AppendIndex(index, layout.WithAnnotations(name)); err != nil {
		return err
	}
	for _, i := range images {
		if err := path.AppendImage(i.contents); err != nil {
			return err
		}
		if err := r.writeArchive(i); err != nil {
			return err
		}
	}
	written, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return err
	}
	if err := validate.Index(written); err != nil {
		return fmt.Errorf("invalid layout in %s: %w", dir, err)
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	fmt.Printf("%s@%s in %s\n", repository, digest, r.relative(dir))
	return nil
}

// writeArchive writes an archive for docker load and podman load, which is for one platform.
func (r *release) writeArchive(i image) error {
	tag, err := name.NewTag(repository + ":" + r.version)
	if err != nil {
		return err
	}
	size, err := compressedSize(i.Image)
	if err != nil {
		return err
	}
	path := r.path(i.os + "_" + i.arch + ".image.tar")
	fmt.Printf("%s: %.1f MB compressed\n", r.relative(path), float64(size)/1e6)
	return tarball.WriteToFile(path, tag, i.Image)
}

func compressedSize(img v1.Image) (int64, error) {
	manifest, err := img.Manifest()
	if err != nil {
		return 0, err
	}
	size := manifest.Config.Size
	for _, l := range manifest.Layers {
		size += l.Size
	}
	return size, nil
}

func pushTag(to string) (name.Tag, error) {
	tag, err := name.NewTag(to, name.StrictValidation)
	if err != nil {
		return tag, fmt.Errorf("PUSH=%s: want registry/repository:tag: %w", to, err)
	}
	return tag, nil
}

// pushImages pushes the index under the requested name, and the attachments of each image. The
// credentials are those of docker login, or of a tool that writes the same file.
func pushImages(to string, index v1.ImageIndex, images []image) error {
	tag, err := pushTag(to)
	if err != nil {
		return err
	}
	auth := remote.WithAuthFromKeychain(authn.DefaultKeychain)
	if err := remote.WriteIndex(tag, index, auth); err != nil {
		return fmt.Errorf("pushing %s: %w", tag, err)
	}
	for _, i := range images {
		digest, err := i.contents.Digest()
		if err != nil {
			return err
		}
		if err := remote.Write(tag.Digest(digest.String()), i.contents, auth); err != nil {
			return fmt.Errorf("pushing the contents of the image for %s: %w", i.platform, err)
		}
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	fmt.Printf("pushed %s\n", tag.Digest(digest.String()))
	return nil
}
