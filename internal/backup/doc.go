// Package backup saves, restores and moves the objects of a standalone, for the commands of cmd/kubeweir. Errors
// name the flag or the file at fault. When a context ends, its error is returned.
package backup
