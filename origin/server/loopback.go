package server

import (
	"net/http"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/kubeweir/kubeweir/internal/inprocess"
	"github.com/kubeweir/kubeweir/origin/builtin/groups"
)

// A loopback is the RoundTripper of the clients in this process. It is made before
// the handler it calls.
type loopback struct {
	handler   atomic.Pointer[http.Handler]
	transport *inprocess.Transport
}

func newLoopback(opts Options) *loopback {
	l := &loopback{}
	l.transport = inprocess.New(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		handler := l.handler.Load()
		if handler == nil {
			http.Error(w, "the server is being built", http.StatusServiceUnavailable)
			return
		}
		(*handler).ServeHTTP(w, req)
	}), opts.Logger)
	return l
}

// RoundTrip implements http.RoundTripper.
func (l *loopback) RoundTrip(req *http.Request) (*http.Response, error) {
	return l.transport.RoundTrip(req.WithContext(WithUser(req.Context(), Privileged())))
}

// config returns the configuration for clients of built-in types: protobuf, as kube-apiserver uses
// for itself, with kube-apiserver's user agent, which becomes the field manager of its writes.
func (l *loopback) config(opts Options) *rest.Config {
	return &rest.Config{
		Host:      "https://" + opts.AdvertiseAddress.String(),
		Transport: l,
		UserAgent: "kube-apiserver/v" + groups.Version + " kubeweir",
		QPS:       -1,
		ContentConfig: rest.ContentConfig{
			ContentType:        runtime.ContentTypeProtobuf,
			AcceptContentTypes: runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON,
		},
		DisableCompression: true,
	}
}
