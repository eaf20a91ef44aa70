// Package cri is a container runtime for tests, where no container engine is: a kubelet talks to it, and what it runs are
// plain processes. A container has namespaces of its own (mounts, processes, host name), the files of its image, the
// kubelet's mounts, the user, groups and rights that its pod names; a pod has a network of its own with nothing but a
// loopback interface, so that nothing in it reaches any machine. Its address, of 127.0.0.0/8, is answered outside of it for
// the ports that its containers name, and inside it the addresses of Services that the runtime was told of.
//
// What the tests do not need is not there, and is refused in words: exec, attach, host networks, privileged containers.
package cri
