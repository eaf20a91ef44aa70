// Package registry stores Kubernetes objects in an engine (origin/storage). Store is the
// storage.Interface of k8s.io/apiserver that generic registries and endpoint handlers use.
// It is apiserver's storage/etcd3 with an engine in the place of etcd's client, so that
// keys and values are kube-apiserver's: an etcd written by kube-apiserver can be taken
// over and handed back.
//
//	/registry/pods/default/web-0            prefix, resource prefix, namespace, name
//	k8s\0 ...                               the object, encoded by the resource's codec
//
// There is no watch cache here (apiserver's storage/cacher): kubeweir's own cache
// stands in front of the whole server and reads each resource by one list and watch.
// For that cache a Store reports progress: every report of an engine's watcher becomes a
// BOOKMARK event, and Progress makes watchers report at once.
//
// The ways to make a Store, from the inside out:
//
//	NewStore             one resource, by hand
//	Decorator            a generic.StorageDecorator, as generic registries ask for
//	NewRESTOptionsGetter a generic.RESTOptionsGetter from a source of codecs
package registry
