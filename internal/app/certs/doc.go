// Package certs provides the serving certificate of a process: from files that are reloaded when they
// change, or signed by a CA that the gateway generates and keeps. It also fills the directory that
// replaces a pod's service account directory beside a sidecar, and reads the keys of service account
// tokens.
package certs
