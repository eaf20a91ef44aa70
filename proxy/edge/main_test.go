package edge_test

import (
	"github.com/kubeweir/kubeweir/internal/edgetest"
	"github.com/kubeweir/kubeweir/proxy/edge/h1"
	"github.com/kubeweir/kubeweir/proxy/edge/h2"
)

func init() { edgetest.HTTP1, edgetest.HTTP2 = h1.Serve, h2.Serve }
