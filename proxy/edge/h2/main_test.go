package h2

import (
	"github.com/kubeweir/kubeweir/internal/edgetest"
	"github.com/kubeweir/kubeweir/proxy/edge/h1"
)

func init() { edgetest.HTTP1, edgetest.HTTP2 = h1.Serve, Serve }
