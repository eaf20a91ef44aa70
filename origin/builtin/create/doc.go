// Package create answers the creation of objects of built-in types.
//
// It does what the handler of k8s.io/apiserver does (pkg/endpoints/handlers, create.go),
// for what nearly every creation is: an object that decodes without a complaint, has no
// managed fields yet and is answered as it is. Nothing else is decided here: a request
// that is anything else is handed to the library's handler, from the beginning and before
// anything was done about it. What the library pays for each object and is saved here are
// a comparison with an empty object to tell what its creator manages (managedfields), and
// a goroutine with a new stack, which has to grow, to answer at the deadline: storing and
// webhooks end at it by themselves, and what plugins read when it is not in their caches
// ends with the time of a request of its own.
package create
