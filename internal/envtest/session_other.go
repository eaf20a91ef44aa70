//go:build !unix

package envtest

func leadsSession() bool { return false }
