//go:build linux

package cri

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A sandbox is a pod: its network and the configuration for its containers.
type sandbox struct {
	id      string
	config  *runtimeapi.PodSandboxConfig
	created time.Time
	address string
	network *network // nil after it was stopped
}

// RunPodSandbox implements RuntimeServiceServer.
func (r *Runtime) RunPodSandbox(_ context.Context, req *runtimeapi.RunPodSandboxRequest) (*runtimeapi.RunPodSandboxResponse, error) {
	config := req.GetConfig()
	options := config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	if options.GetNetwork() == runtimeapi.NamespaceMode_NODE || options.GetPid() == runtimeapi.NamespaceMode_NODE {
		return nil, status.Error(codes.Unimplemented, "this runtime does not support host network or host PID")
	}
	n, err := newNetwork(r.opts.Services)
	if err != nil {
		return nil, fmt.Errorf("create the network of a pod: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	id := r.newID()
	s := &sandbox{id: id, config: config, created: time.Now(), network: n}
	s.address = fmt.Sprintf("127.97.%d.%d", r.made/250, r.made%250+1)
	for _, p := range config.GetPortMappings() {
		if p.HostPort == 0 {
			continue
		}
		host := p.HostIp
		if host == "" {
			host = "127.0.0.1"
		}
		if err := n.expose(net.JoinHostPort(host, strconv.Itoa(int(p.HostPort))), s.inside(p.ContainerPort)); err != nil {
			n.close()
			return nil, fmt.Errorf("listen on the host port: %w", err)
		}
	}
	r.sandboxes[id] = s
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: id}, nil
}

// inside returns the address of a pod's port inside the pod's network.
func (s *sandbox) inside(port int32) string {
	return net.JoinHostPort(s.address, strconv.Itoa(int(port)))
}

// StopPodSandbox implements RuntimeServiceServer.
func (r *Runtime) StopPodSandbox(_ context.Context, req *runtimeapi.StopPodSandboxRequest) (*runtimeapi.StopPodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.sandboxes[req.PodSandboxId]; s != nil {
		r.stopSandbox(s)
	}
	return &runtimeapi.StopPodSandboxResponse{}, nil
}

// stopSandbox kills the running containers of a pod and closes its network. The caller holds mu.
func (r *Runtime) stopSandbox(s *sandbox) {
	for _, c := range r.containers {
		if c.sandbox == s {
			c.kill()
		}
	}
	if s.network != nil {
		s.network.close()
		s.network = nil
	}
}

// RemovePodSandbox implements RuntimeServiceServer.
func (r *Runtime) RemovePodSandbox(_ context.Context, req *runtimeapi.RemovePodSandboxRequest) (*runtimeapi.RemovePodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.sandboxes[req.PodSandboxId]; s != nil {
		r.stopSandbox(s)
		for id, c := range r.containers {
			if c.sandbox == s {
				delete(r.containers, id)
			}
		}
		delete(r.sandboxes, s.id)
	}
	return &runtimeapi.RemovePodSandboxResponse{}, nil
}

// PodSandboxStatus implements RuntimeServiceServer.
func (r *Runtime) PodSandboxStatus(_ context.Context, req *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sandboxes[req.PodSandboxId]
	if s == nil {
		return nil, status.Errorf(codes.NotFound, "sandbox %s not found", req.PodSandboxId)
	}
	return &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{
		Id: s.id, Metadata: s.config.Metadata, State: s.state(), CreatedAt: s.created.UnixNano(),
		Network: &runtimeapi.PodSandboxNetworkStatus{Ip: s.address},
		Linux:   &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: s.config.GetLinux().GetSecurityContext().GetNamespaceOptions()}},
		Labels:  s.config.Labels, Annotations: s.config.Annotations,
	}}, nil
}

func (s *sandbox) state() runtimeapi.PodSandboxState {
	if s.network == nil {
		return runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	}
	return runtimeapi.PodSandboxState_SANDBOX_READY
}

// ListPodSandbox implements RuntimeServiceServer.
func (r *Runtime) ListPodSandbox(_ context.Context, req *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	resp, requested := &runtimeapi.ListPodSandboxResponse{}, req.GetFilter()
	for _, s := range r.sandboxes {
		if requested.GetId() != "" && requested.GetId() != s.id || requested.GetState() != nil && requested.GetState().State != s.state() ||
			!matches(s.config.Labels, requested.GetLabelSelector()) {
			continue
		}
		resp.Items = append(resp.Items, &runtimeapi.PodSandbox{
			Id: s.id, Metadata: s.config.Metadata, State: s.state(), CreatedAt: s.created.UnixNano(),
			Labels: s.config.Labels, Annotations: s.config.Annotations,
		})
	}
	return resp, nil
}

// ListPodSandboxStats implements RuntimeServiceServer. Nothing is measured.
func (r *Runtime) ListPodSandboxStats(context.Context, *runtimeapi.ListPodSandboxStatsRequest) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	return &runtimeapi.ListPodSandboxStatsResponse{}, nil
}
