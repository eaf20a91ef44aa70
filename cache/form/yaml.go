package form

import (
	"errors"
	"fmt"
	"math"

	"sigs.k8s.io/yaml"

	"github.com/kubeweir/kubeweir/api"
)

// YAML is the JSON form of a whole body transcoded, by the library by which kube-apiserver
// does it. That costs a hundred times what the JSON costs, and thirty times its room, so
// that it is done for small bodies only, a few at a time; the rest is the upstream's.

const (
	// maxYAML is the largest JSON that is transcoded: some 100 ms of a processor.
	maxYAML = 1 << 20
	// yamlAtOnce is how many bodies are transcoded at a time.
	yamlAtOnce = 4
)

// ErrCostly says that a body is not given in a form because of what that would cost.
var ErrCostly = errors.New("too much to transcode")

// yamlMediaType is the Content-Type of bodies in YAML.
const yamlMediaType = "application/yaml"

// yaml answers with the body in YAML.
func (b *body) yaml(resp *api.Response) (*api.Response, error) {
	if b.atLeast() > maxYAML {
		return nil, fmt.Errorf("%w: %d bytes of JSON", ErrCostly, b.atLeast())
	}
	select {
	case b.r.transcoding <- struct{}{}:
		defer func() { <-b.r.transcoding }()
	default:
		return nil, fmt.Errorf("%w: %d bodies are being transcoded", ErrCostly, yamlAtOnce)
	}
	text, err := yaml.JSONToYAML(b.bytes())
	if err != nil {
		return nil, err
	}
	rep, coding := b.items.form.common().rep, b.coding
	if len(text) <= api.CompressionThreshold {
		coding = api.Identity
	}
	if coding != api.Identity {
		text = b.r.coder.whole(coding, text)
		resp.Header.Add("Content-Encoding", coding.String())
		resp.Header.Add("Vary", "Accept-Encoding")
	}
	resp.Header.Set("Content-Type", yamlMediaType)
	resp.Body, resp.Length = text, int64(len(text))
	b.r.metrics.bytes.WithLabelValues("yaml", transforms[rep.Transform], coding.String()).Add(float64(len(text)))
	return resp, nil
}

// whole is text as a whole body, compressed.
func (c *coder) whole(coding api.Compression, text []byte) []byte {
	piece := c.piece(coding, nil, text)
	crc, _ := c.checksum(text)
	before, after := c.enclose(coding, nil, nil, &compressed{raw: int64(len(text)), crc: crc, from: math.MinInt64, until: math.MaxInt64})
	return append(append(before, piece...), after...)
}
