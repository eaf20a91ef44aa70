package fakenodes

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
)

const (
	// maxNodes is how many ranges there are in 10.244.0.0/14: each node has one of 256 addresses.
	maxNodes = 1024
	// lastAddress is the last one of a range that a Pod can have. The first one, 0, is the node's.
	lastAddress = 254
)

// addresses are the IP addresses of Pods. Two Pods that have not ended never share one.
type addresses struct {
	hasEnded func(holder) bool
	mu       sync.Mutex
	holders  map[netip.Addr][]holder // guarded by mu; some may have ended
}

// holder is a Pod that has an address.
type holder struct {
	name cache.ObjectName
	uid  types.UID
}

func holderOf(pod *corev1.Pod) holder { return holder{cache.MetaObjectToName(pod), pod.UID} }

// hold records the address that a Pod's status has.
func (a *addresses) hold(pod *corev1.Pod) {
	ip, err := netip.ParseAddr(pod.Status.PodIP)
	if err != nil || podutil.IsPodTerminal(pod) || pod.Spec.HostNetwork {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Contains(a.holders[ip], holderOf(pod)) {
		a.holders[ip] = append(a.holders[ip], holderOf(pod))
	}
}

// addressOf returns an address of the range of a node.
func addressOf(node, last int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 244 + byte(node>>8), byte(node), byte(last)})
}

// hostAddress returns the address of a node that its Pods have in their status. It differs from the node's
// InternalIP, where its kubelet listens, because EndpointSlices cannot contain loopback addresses.
func hostAddress(node string) string { return addressOf(nodeIndex(node), 0).String() }

// allocate returns an address for a Pod, from the range of its node.
func (a *addresses) allocate(pod *corev1.Pod) (string, error) {
	if pod.Spec.HostNetwork {
		return hostAddress(pod.Spec.NodeName), nil
	}
	node, h := nodeIndex(pod.Spec.NodeName), holderOf(pod)
	a.mu.Lock()
	defer a.mu.Unlock()
	for last := 1; last <= lastAddress; last++ {
		ip := addressOf(node, last)
		a.holders[ip] = slices.DeleteFunc(a.holders[ip], func(other holder) bool { return other == h || a.hasEnded(other) })
		if len(a.holders[ip]) == 0 {
			a.holders[ip] = []holder{h}
			return ip.String(), nil
		}
	}
	return "", fmt.Errorf("no address of node %s is free", pod.Spec.NodeName)
}

// nodeIndex returns the number in the name of a node, -1 if it has not the form of a fake node's.
func nodeIndex(name string) int {
	digits, ok := strings.CutPrefix(name, prefix)
	i, err := strconv.Atoi(digits)
	if !ok || err != nil || i < 0 || i >= maxNodes || strconv.Itoa(i) != digits {
		return -1
	}
	return i
}
