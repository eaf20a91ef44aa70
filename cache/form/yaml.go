package form

import (
	"errors"
	"fmt"

	"sigs.k8s.io/yaml"

	"github.com/kubeweir/kubeweir/api"
)

// YAML bodies are the JSON body transcoded with the library that kube-apiserver uses. That takes a
// hundred times the CPU and thirty times the memory of JSON, so only small bodies are transcoded, a
// few at a time; other requests are forwarded.

const (
	// maxYAML is the size limit of the JSON, in bytes: about 100 ms of CPU.
	maxYAML = 1 << 20
	// yamlAtOnce is how many bodies are transcoded at a time.
	yamlAtOnce = 4
)

// ErrCostly reports that rendering a body would cost too much.
var ErrCostly = errors.New("too expensive to transcode")

// yaml renders the body in YAML.
func (b *body) yaml(resp *api.Response, coding api.Compression) (*api.Response, error) {
	c := b.form.common()
	if b.atLeast() > maxYAML {
		return nil, fmt.Errorf("%w: %d bytes of JSON", ErrCostly, b.atLeast())
	}
	select {
	case c.r.transcoding <- struct{}{}:
		defer func() { <-c.r.transcoding }()
	default:
		return nil, fmt.Errorf("%w: %d bodies are being transcoded", ErrCostly, yamlAtOnce)
	}
	text, err := yaml.JSONToYAML(b.bytes())
	if err != nil {
		return nil, err
	}
	if len(text) <= api.CompressionThreshold {
		coding = api.Identity
	}
	if coding != api.Identity {
		text = c.r.coder.Whole(coding, text)
		resp.Header.Add("Content-Encoding", coding.String())
		resp.Header.Add("Vary", "Accept-Encoding")
	}
	resp.Header.Set("Content-Type", "application/yaml")
	resp.Body, resp.Length = text, int64(len(text))
	c.r.metrics.bytes.WithLabelValues("yaml", transforms[c.rep.Transform], coding.String()).Add(float64(len(text)))
	return resp, nil
}
