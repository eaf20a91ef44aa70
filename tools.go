//go:build tools

package tools

import (
	_ "github.com/cockroachdb/datadriven"
	_ "github.com/dgraph-io/ristretto/v2"
	_ "github.com/klauspost/compress/gzip"
	_ "github.com/klauspost/compress/zstd"
	_ "github.com/prometheus/client_golang/prometheus/promhttp"
	_ "github.com/spf13/pflag"
	_ "github.com/tidwall/btree"
	_ "github.com/valyala/fasthttp"
	_ "go.uber.org/goleak"
	_ "golang.org/x/net/http2"
	_ "golang.org/x/sync/errgroup"
	_ "google.golang.org/protobuf/encoding/protowire"
	_ "k8s.io/api/core/v1"
	_ "k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor"
	_ "k8s.io/apimachinery/pkg/util/proxy"
	_ "k8s.io/apiserver/pkg/apis/audit/v1"
	_ "k8s.io/client-go/dynamic"
	_ "k8s.io/client-go/kubernetes"
	_ "k8s.io/client-go/metadata"
	_ "k8s.io/kubernetes/pkg/printers/internalversion"
	_ "sigs.k8s.io/controller-runtime"
	_ "sigs.k8s.io/yaml"
)
