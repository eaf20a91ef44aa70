//go:build linux

package cri

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
)

// Options configure a Runtime.
type Options struct {
	// Dir holds the socket and the files that containers write outside of volumes.
	Dir string
	// Images by name. There is no registry: other images cannot be pulled.
	Images map[string]*Image
	// Services maps addresses that pods reach (HOST:PORT in 127.0.0.0/8) to the addresses outside
	// to which they lead.
	Services map[string]string
}

// A Runtime serves CRI on a unix socket. Its methods are safe for concurrent use.
type Runtime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer

	opts    Options
	grpc    *grpc.Server
	streams streaming.Server
	web     *http.Server
	serving sync.WaitGroup

	mu         sync.Mutex
	made       int // number of sandboxes and containers created, for their ids
	sandboxes  map[string]*sandbox
	containers map[string]*container

	endings struct { // its lock is acquired after mu
		sync.Mutex
		codes map[string][]int
	}
}

// Start starts a runtime. Close ends it.
func Start(opts Options) (*Runtime, error) {
	r := &Runtime{opts: opts, grpc: grpc.NewServer(), sandboxes: make(map[string]*sandbox), containers: make(map[string]*container)}
	r.endings.codes = make(map[string][]int)
	socket, err := net.Listen("unix", filepath.Join(opts.Dir, "cri.sock"))
	if err != nil {
		return nil, err
	}
	web, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, socket.Close())
	}
	config := streaming.DefaultConfig
	config.BaseURL = &url.URL{Scheme: "http", Host: web.Addr().String()}
	if r.streams, err = streaming.NewServer(config, forwarder{r}); err != nil {
		return nil, errors.Join(err, socket.Close(), web.Close())
	}
	r.web = &http.Server{Handler: r.streams}
	runtimeapi.RegisterRuntimeServiceServer(r.grpc, r)
	runtimeapi.RegisterImageServiceServer(r.grpc, r)
	r.serving.Go(func() { _ = r.grpc.Serve(socket) })
	r.serving.Go(func() { _ = r.web.Serve(web) })
	return r, nil
}

// Endpoint returns the address for the kubelet.
func (r *Runtime) Endpoint() string { return "unix://" + filepath.Join(r.opts.Dir, "cri.sock") }

// Close ends all containers and the runtime.
func (r *Runtime) Close() {
	r.grpc.Stop()
	_ = r.web.Close()
	r.serving.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sandboxes {
		r.stopSandbox(s)
	}
}

// newID returns the id of a new sandbox or container. The caller holds mu.
func (r *Runtime) newID() string {
	r.made++
	return fmt.Sprintf("%064x", r.made)
}

// Version implements RuntimeServiceServer.
func (r *Runtime) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "processes", RuntimeVersion: "0.1.0", RuntimeApiVersion: "v1"}, nil
}

// Status implements RuntimeServiceServer.
func (r *Runtime) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		{Type: runtimeapi.RuntimeReady, Status: true}, {Type: runtimeapi.NetworkReady, Status: true},
	}}}, nil
}

// UpdateRuntimeConfig implements RuntimeServiceServer.
func (r *Runtime) UpdateRuntimeConfig(context.Context, *runtimeapi.UpdateRuntimeConfigRequest) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
}

// RuntimeConfig implements RuntimeServiceServer. There are no control groups.
func (r *Runtime) RuntimeConfig(context.Context, *runtimeapi.RuntimeConfigRequest) (*runtimeapi.RuntimeConfigResponse, error) {
	return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS}}, nil
}

// matches reports whether labels contains all labels of a filter.
func matches(labels, requested map[string]string) bool {
	for name, value := range requested {
		if labels[name] != value {
			return false
		}
	}
	return true
}

// folder creates the folder of a sandbox or a container.
func (r *Runtime) folder(id string) (string, error) {
	dir := filepath.Join(r.opts.Dir, id)
	return dir, os.Mkdir(dir, 0o755)
}
