package h1

import (
	"github.com/kubeweir/kubeweir/internal/edgetest"
	"github.com/kubeweir/kubeweir/proxy/edge/h2"
)

func init() { edgetest.HTTP1, edgetest.HTTP2 = Serve, h2.Serve }
