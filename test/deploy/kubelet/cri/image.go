//go:build linux

package cri

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// An Image is an unpacked container image.
type Image struct {
	Root       string // folder with its files
	Entrypoint []string
	Env        []string
	UID, GID   int64
}

// Unpack unpacks an image in the format of `docker save` into a folder.
func Unpack(archive, dir string) (*Image, error) {
	files := filepath.Join(dir, "archive")
	image := &Image{Root: filepath.Join(dir, "root")}
	for _, folder := range []string{files, image.Root} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return nil, err
		}
	}
	f, err := os.Open(archive)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if err := untar(f, files); err != nil {
		return nil, err
	}
	var manifest []struct {
		Config string
		Layers []string
	}
	if err := readJSON(filepath.Join(files, "manifest.json"), &manifest); err != nil || len(manifest) != 1 {
		return nil, fmt.Errorf("%s has %d images: %w", archive, len(manifest), err)
	}
	for _, layer := range manifest[0].Layers {
		if err := unpackLayer(filepath.Join(files, layer), image.Root); err != nil {
			return nil, fmt.Errorf("layer %s: %w", layer, err)
		}
	}
	var config struct {
		Config struct {
			User            string
			Entrypoint, Env []string
		}
	}
	if err := readJSON(filepath.Join(files, manifest[0].Config), &config); err != nil {
		return nil, err
	}
	image.Entrypoint, image.Env = config.Config.Entrypoint, config.Config.Env
	user, group, _ := strings.Cut(config.Config.User, ":")
	var bad error
	if image.UID, err = strconv.ParseInt(user, 10, 32); err != nil {
		bad = err
	}
	if image.GID, err = strconv.ParseInt(group, 10, 32); err != nil {
		bad = err
	}
	return image, bad
}

func readJSON(path string, into any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, into)
}

func unpackLayer(path, root string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	r, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	return untar(r, root)
}

// untar unpacks files and folders with their owners.
func untar(r io.Reader, root string) error {
	for archive := tar.NewReader(r); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		path := filepath.Join(root, header.Name)
		if header.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, header.FileInfo().Mode())
		} else {
			err = write(path, archive, header.FileInfo().Mode())
		}
		if err == nil {
			err = os.Lchown(path, header.Uid, header.Gid)
		}
		if err != nil {
			return err
		}
	}
}

func write(path string, content io.Reader, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Close())
}

func (r *Runtime) describe(name string) *runtimeapi.Image {
	image := r.opts.Images[name]
	if image == nil {
		return nil
	}
	return &runtimeapi.Image{Id: name, RepoTags: []string{name}, Size: 1, Uid: &runtimeapi.Int64Value{Value: image.UID}, Spec: &runtimeapi.ImageSpec{Image: name}}
}

// ListImages implements ImageServiceServer.
func (r *Runtime) ListImages(context.Context, *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	resp := &runtimeapi.ListImagesResponse{}
	for name := range r.opts.Images {
		resp.Images = append(resp.Images, r.describe(name))
	}
	return resp, nil
}

// ImageStatus implements ImageServiceServer.
func (r *Runtime) ImageStatus(_ context.Context, req *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	return &runtimeapi.ImageStatusResponse{Image: r.describe(req.Image.GetImage())}, nil
}

// PullImage implements ImageServiceServer.
func (r *Runtime) PullImage(_ context.Context, req *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error) {
	if name := req.Image.GetImage(); r.opts.Images[name] == nil {
		return nil, status.Errorf(codes.NotFound, "%s: not found", name)
	}
	return &runtimeapi.PullImageResponse{ImageRef: req.Image.GetImage()}, nil
}

// RemoveImage implements ImageServiceServer. It removes nothing.
func (r *Runtime) RemoveImage(context.Context, *runtimeapi.RemoveImageRequest) (*runtimeapi.RemoveImageResponse, error) {
	return &runtimeapi.RemoveImageResponse{}, nil
}

// ImageFsInfo implements ImageServiceServer.
func (r *Runtime) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	usage := []*runtimeapi.FilesystemUsage{{
		Timestamp: 1, FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: r.opts.Dir},
		UsedBytes: &runtimeapi.UInt64Value{}, InodesUsed: &runtimeapi.UInt64Value{},
	}}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: usage, ContainerFilesystems: usage}, nil
}
