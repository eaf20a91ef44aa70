// Package visible compares what users are shown of all namespaces (visibleLists of rules) with what a real kube-apiserver
// lists them namespace by namespace: random rights and random requests, in every form. After each change of rights, open
// watches end whose namespaces have become others, and no others end.
// Of four such states, in one a webhook denies some of what RBAC allows, or allows it by selectors only.
//
// A failure names the seed (internal/soak).
package visible
