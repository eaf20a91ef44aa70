// Package cri is a container runtime for tests on machines without a container engine. A kubelet
// talks to it, and the containers are plain processes. A container has its own namespaces (mounts,
// processes, host name), the files of its image, the kubelet's mounts, and the user, groups and
// rights of its pod. A pod has a network of its own with only a loopback interface, so that its
// processes cannot reach any machine. Outside the pod, its address in 127.0.0.0/8 accepts
// connections on the ports that its containers name. Inside, the addresses of the configured
// Services lead outside.
//
// Features that the tests do not need are rejected with an explanation: exec, attach, host
// networks, privileged containers.
package cri
