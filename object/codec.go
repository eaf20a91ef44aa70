package object

import (
	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/encoding"
	"github.com/kubeweir/kubeweir/encoding/json"
	"github.com/kubeweir/kubeweir/encoding/protobuf"
)

// codecs are the encodings in which collections can be kept: one row each.
var codecs = [...]encoding.Codec{
	api.JSON:     json.Codec{},
	api.Protobuf: protobuf.Codec{},
}

// Codec returns what reads an encoding; nil for an unknown one.
func Codec(enc api.Encoding) encoding.Codec {
	if int(enc) >= len(codecs) {
		return nil
	}
	return codecs[enc]
}
