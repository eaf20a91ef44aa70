// Package registry puts Kubernetes objects into an engine (origin/storage): Store is
// k8s.io/apiserver's storage.Interface, what generic registries and endpoint handlers
// stand on. It takes the place of apiserver's storage/etcd3 and keeps its promises,
// its keys and its values, so that an etcd written by kube-apiserver can be taken
// over and handed back:
//
//	/registry/pods/default/web-0            prefix, resource prefix, namespace, name
//	k8s\0 ...                               the object, encoded by the resource's codec
//
// There is no watch cache here (apiserver's storage/cacher): kubeweir's own cache
// stands in front of the whole server and reads each resource by one list and watch.
// For it a Store tells progress: every report of an engine's watcher becomes a
// BOOKMARK event, and Progress makes watchers report at once.
//
// How a Store is made, from the inside out:
//
//	NewStore             one resource, by hand
//	Decorator            a generic.StorageDecorator, as generic registries ask for
//	NewRESTOptionsGetter a generic.RESTOptionsGetter from a source of codecs
package registry
