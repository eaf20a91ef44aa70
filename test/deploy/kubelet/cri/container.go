//go:build linux

package cri

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A container is a process of a pod. Its fields except mu are set before other goroutines see it.
type container struct {
	id      string
	sandbox *sandbox
	config  *runtimeapi.ContainerConfig
	image   *Image
	log     string // path
	dir     string
	created time.Time

	done  chan struct{} // closed when the process has ended and all its output is in the log
	ended func(code int)

	mu struct {
		sync.Mutex
		process           *os.Process // nil before the start
		started, finished time.Time
		exit              int32
	}
}

// portsAnnotation is the annotation in which the kubelet passes a container's ports; those of init
// containers are nowhere else.
const portsAnnotation = "io.kubernetes.container.ports"

// CreateContainer implements RuntimeServiceServer.
func (r *Runtime) CreateContainer(_ context.Context, req *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, config := r.sandboxes[req.PodSandboxId], req.GetConfig()
	if s == nil || s.network == nil {
		return nil, status.Errorf(codes.NotFound, "the sandbox %s does not exist or was stopped", req.PodSandboxId)
	}
	image := r.opts.Images[config.GetImage().GetImage()]
	if image == nil {
		return nil, status.Errorf(codes.NotFound, "%s: not found", config.GetImage().GetImage())
	}
	if security := config.GetLinux().GetSecurityContext(); security.GetPrivileged() || !slices.Contains(security.GetCapabilities().GetDropCapabilities(), "ALL") {
		return nil, status.Error(codes.Unimplemented, "this runtime supports only containers that drop all capabilities")
	}
	id := r.newID()
	dir, err := r.folder(id)
	if err != nil {
		return nil, err
	}
	c := &container{id: id, sandbox: s, config: config, image: image, dir: dir, created: time.Now(), done: make(chan struct{}),
		log: filepath.Join(s.config.LogDirectory, config.LogPath)}
	c.ended = func(code int) {
		r.end(name(s.config.Metadata.Namespace, s.config.Metadata.Name, config.Metadata.Name), code)
	}
	r.containers[id] = c
	return &runtimeapi.CreateContainerResponse{ContainerId: id}, nil
}

// StartContainer implements RuntimeServiceServer.
func (r *Runtime) StartContainer(_ context.Context, req *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := r.container(req.ContainerId)
	if err != nil {
		return nil, err
	}
	if c.sandbox.network == nil {
		return nil, status.Error(codes.FailedPrecondition, "the sandbox was stopped")
	}
	if err := c.expose(); err != nil {
		return nil, err
	}
	return &runtimeapi.StartContainerResponse{}, c.start()
}

// container returns the container with the id. The caller holds mu.
func (r *Runtime) container(id string) (*container, error) {
	if c := r.containers[id]; c != nil {
		return c, nil
	}
	return nil, status.Errorf(codes.NotFound, "container %s not found", id)
}

// expose forwards the container's ports from the pod's address, once for all starts.
func (c *container) expose() error {
	text := c.config.Annotations[portsAnnotation]
	if text == "" {
		return nil
	}
	var ports []corev1.ContainerPort
	if err := json.Unmarshal([]byte(text), &ports); err != nil {
		return err
	}
	for _, p := range ports {
		address := c.sandbox.inside(p.ContainerPort)
		if err := c.sandbox.network.expose(address, address); err != nil && !errors.Is(err, syscall.EADDRINUSE) {
			return err
		}
	}
	return nil
}

// start starts the process and returns when it runs the image's program. The log records its output
// until it ends.
func (c *container) start() error {
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	message, err := json.Marshal(c.orders())
	if err != nil {
		return err
	}
	var pipes pipes
	defer pipes.close()
	outRead, outWrite := pipes.open()
	errRead, errWrite := pipes.open()
	failRead, failWrite := pipes.open()
	if pipes.err != nil {
		return errors.Join(pipes.err, log.Close())
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{initName, string(message)}
	cmd.Env = []string{}
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = outWrite, errWrite, []*os.File{failWrite}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true,
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC}
	if err := c.sandbox.network.do(cmd.Start); err != nil {
		return errors.Join(err, log.Close())
	}
	for _, f := range []*os.File{outWrite, errWrite, failWrite} {
		_ = f.Close()
	}
	failure, err := io.ReadAll(failRead)
	if err != nil || len(failure) > 0 {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return errors.Join(status.Errorf(codes.Unknown, "failed to create containerd task: %s", failure), err, log.Close())
	}
	c.mu.Lock()
	c.mu.process, c.mu.started = cmd.Process, time.Now()
	c.mu.Unlock()
	pipes.keep(outRead, errRead)
	go c.watch(cmd, &criLog{file: log}, outRead, errRead)
	return nil
}

// watch writes the log until the process has ended, which closes the remaining ends of its pipes.
func (c *container) watch(cmd *exec.Cmd, log *criLog, stdout, stderr *os.File) {
	var copying sync.WaitGroup
	copying.Go(func() { log.copy("stdout", stdout) })
	copying.Go(func() { log.copy("stderr", stderr) })
	copying.Wait()
	_ = cmd.Wait()
	_ = log.file.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.finished = time.Now()
	c.mu.exit = int32(cmd.ProcessState.ExitCode())
	if s := cmd.ProcessState.Sys().(syscall.WaitStatus); s.Signaled() {
		c.mu.exit = 128 + int32(s.Signal())
	}
	c.ended(int(c.mu.exit))
	close(c.done)
}

// orders returns the instructions for the container's first process.
func (c *container) orders() orders {
	security := c.config.GetLinux().GetSecurityContext()
	o := orders{
		Root: c.dir, Image: c.image.Root, Hostname: c.sandbox.config.Hostname, WorkingDir: c.config.WorkingDir,
		ReadOnly: security.GetReadonlyRootfs(), NoNewPrivs: security.GetNoNewPrivs(),
		UID: c.image.UID, GID: c.image.GID,
	}
	if o.WorkingDir == "" {
		o.WorkingDir = "/"
	}
	if user := security.GetRunAsUser(); user != nil {
		if o.UID = user.Value; o.UID != c.image.UID {
			o.GID = 0
		}
	}
	if group := security.GetRunAsGroup(); group != nil {
		o.GID = group.Value
	}
	o.Groups = append([]int64{o.GID}, security.GetSupplementalGroups()...)
	command := c.config.Command
	if len(command) == 0 {
		command = c.image.Entrypoint
	}
	o.Args = slices.Concat(command, c.config.Args)
	o.Env = slices.Concat([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOSTNAME=" + o.Hostname}, c.image.Env)
	for _, e := range c.config.Envs {
		o.Env = append(o.Env, e.Key+"="+string(e.Value))
	}
	for _, m := range c.config.Mounts {
		o.Mounts = append(o.Mounts, mount{From: m.HostPath, To: m.ContainerPath, ReadOnly: m.Readonly})
	}
	// Mounts inside other mounts come after them.
	slices.SortStableFunc(o.Mounts, func(a, b mount) int { return strings.Count(a.To, "/") - strings.Count(b.To, "/") })
	return o
}

// signal sends a signal to a running process.
func (c *container) signal(s os.Signal) {
	c.mu.Lock()
	process := c.mu.process
	c.mu.Unlock()
	if process != nil {
		_ = process.Signal(s) // the process may have ended
	}
}

// kill ends a container immediately.
func (c *container) kill() {
	if c.running() {
		c.signal(syscall.SIGKILL)
		<-c.done
	}
}

func (c *container) running() bool { return c.state() == runtimeapi.ContainerState_CONTAINER_RUNNING }

func (c *container) state() runtimeapi.ContainerState {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.mu.process == nil:
		return runtimeapi.ContainerState_CONTAINER_CREATED
	case c.mu.finished.IsZero():
		return runtimeapi.ContainerState_CONTAINER_RUNNING
	default:
		return runtimeapi.ContainerState_CONTAINER_EXITED
	}
}

// StopContainer implements RuntimeServiceServer.
func (r *Runtime) StopContainer(ctx context.Context, req *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	r.mu.Lock()
	c := r.containers[req.ContainerId]
	r.mu.Unlock()
	if c == nil || !c.running() {
		return &runtimeapi.StopContainerResponse{}, nil
	}
	grace := time.NewTimer(time.Duration(req.Timeout) * time.Second)
	defer grace.Stop()
	c.signal(syscall.SIGTERM)
	select {
	case <-c.done:
	case <-grace.C:
		c.kill()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return &runtimeapi.StopContainerResponse{}, nil
}

// RemoveContainer implements RuntimeServiceServer.
func (r *Runtime) RemoveContainer(_ context.Context, req *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[req.ContainerId]; c != nil {
		c.kill()
		delete(r.containers, c.id)
	}
	return &runtimeapi.RemoveContainerResponse{}, nil
}

// ListContainers implements RuntimeServiceServer.
func (r *Runtime) ListContainers(_ context.Context, req *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	resp, requested := &runtimeapi.ListContainersResponse{}, req.GetFilter()
	for _, c := range r.containers {
		if requested.GetId() != "" && requested.GetId() != c.id || requested.GetPodSandboxId() != "" && requested.GetPodSandboxId() != c.sandbox.id ||
			requested.GetState() != nil && requested.GetState().State != c.state() || !matches(c.config.Labels, requested.GetLabelSelector()) {
			continue
		}
		resp.Containers = append(resp.Containers, &runtimeapi.Container{
			Id: c.id, PodSandboxId: c.sandbox.id, Metadata: c.config.Metadata, Image: c.config.Image, ImageRef: c.config.Image.Image,
			ImageId: c.config.Image.Image, State: c.state(), CreatedAt: c.created.UnixNano(), Labels: c.config.Labels, Annotations: c.config.Annotations,
		})
	}
	return resp, nil
}

// ContainerStatus implements RuntimeServiceServer.
func (r *Runtime) ContainerStatus(_ context.Context, req *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := r.container(req.ContainerId)
	if err != nil {
		return nil, err
	}
	s := &runtimeapi.ContainerStatus{
		Id: c.id, Metadata: c.config.Metadata, State: c.state(), CreatedAt: c.created.UnixNano(), Image: c.config.Image,
		ImageRef: c.config.Image.Image, ImageId: c.config.Image.Image, Labels: c.config.Labels, Annotations: c.config.Annotations,
		Mounts: c.config.Mounts, LogPath: c.log,
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.mu.started.IsZero() {
		s.StartedAt = c.mu.started.UnixNano()
	}
	if s.State == runtimeapi.ContainerState_CONTAINER_EXITED {
		s.FinishedAt, s.ExitCode, s.Reason = c.mu.finished.UnixNano(), c.mu.exit, "Completed"
		if s.ExitCode != 0 {
			s.Reason = "Error"
		}
	}
	return &runtimeapi.ContainerStatusResponse{Status: s}, nil
}

// UpdateContainerResources implements RuntimeServiceServer. It ignores limits.
func (r *Runtime) UpdateContainerResources(context.Context, *runtimeapi.UpdateContainerResourcesRequest) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	return &runtimeapi.UpdateContainerResourcesResponse{}, nil
}

// ListContainerStats implements RuntimeServiceServer. It returns no statistics.
func (r *Runtime) ListContainerStats(context.Context, *runtimeapi.ListContainerStatsRequest) (*runtimeapi.ListContainerStatsResponse, error) {
	return &runtimeapi.ListContainerStatsResponse{}, nil
}

// Kill ends a container's process with SIGKILL, as the kernel does when memory runs out.
func (r *Runtime) Kill(namespace, pod, container string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.containers {
		if of := c.sandbox.config.Metadata; of.Namespace == namespace && of.Name == pod && c.config.Metadata.Name == container && c.running() {
			c.kill()
			return nil
		}
	}
	return fmt.Errorf("no container %s of the pod %s/%s is running", container, namespace, pod)
}

// Ended returns the exit codes of a container's processes that have ended, in order.
func (r *Runtime) Ended(namespace, pod, container string) []int {
	r.endings.Lock()
	defer r.endings.Unlock()
	return slices.Clone(r.endings.codes[name(namespace, pod, container)])
}

func (r *Runtime) end(container string, code int) {
	r.endings.Lock()
	defer r.endings.Unlock()
	r.endings.codes[container] = append(r.endings.codes[container], code)
}

func name(namespace, pod, container string) string { return namespace + "/" + pod + "/" + container }
