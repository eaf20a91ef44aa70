// Package extension keeps servers elsewhere (webhooks, aggregated API servers) from
// harming this one: what they answer is bounded in size and time, and nothing that they
// answer is a panic in a goroutine that the libraries do not watch over.
package extension

import (
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
)

const (
	// AdmissionResponse is how many bytes the answer of an admission webhook may have: a
	// patch, in base64, of an object of at most 3 MiB, and more.
	AdmissionResponse = 16 << 20
	// ConversionResponse is how many bytes that of a conversion webhook may have, which
	// holds all objects of a list.
	ConversionResponse = 256 << 20
	// WebhookTimeout ends calls that set no deadline of their own: those of conversion
	// webhooks. It is the longest that an admission webhook may be given.
	WebhookTimeout = 30 * time.Second
)

// Webhooks bounds what webhooks may answer to limit bytes, and their time to
// WebhookTimeout, which includes reading the answer. The client of the libraries reads
// answers of any size, repeats a call as late as the webhook says (Retry-After), and a
// conversion waits for ever.
func Webhooks(limit int64) webhook.AuthenticationInfoResolverWrapper {
	bounded := func(config *rest.Config, err error) (*rest.Config, error) {
		if err != nil {
			return nil, err
		}
		config = rest.CopyConfig(config) // it may be this server's own, which others use
		config.Timeout = WebhookTimeout
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &boundedTransport{next, limit} })
		return config, nil
	}
	return func(next webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver {
		return &webhook.AuthenticationInfoResolverDelegator{
			ClientConfigForFunc: func(hostPort string) (*rest.Config, error) {
				return bounded(next.ClientConfigFor(hostPort))
			},
			ClientConfigForServiceFunc: func(name, namespace string, port int) (*rest.Config, error) {
				return bounded(next.ClientConfigForService(name, namespace, port))
			},
		}
	}
}

// boundedTransport ends answers that are too large with an error.
type boundedTransport struct {
	next  http.RoundTripper
	limit int64
}

// RoundTrip implements http.RoundTripper.
func (b *boundedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	resp.Header.Del("Retry-After")
	resp.Body = &boundedBody{resp.Body, b.limit, b.limit}
	return resp, nil
}

// WrappedRoundTripper implements net.RoundTripperWrapper of k8s.io/apimachinery.
func (b *boundedTransport) WrappedRoundTripper() http.RoundTripper { return b.next }

type boundedBody struct {
	io.ReadCloser
	limit, left int64
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, tooLargeError(b.limit)
	}
	// One byte more than is left tells what is too large from what just fits.
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left+1)])
	if b.left -= int64(n); b.left < 0 {
		return n - 1, tooLargeError(b.limit)
	}
	return n, err
}

type tooLargeError int64

func (e tooLargeError) Error() string {
	return fmt.Sprintf("the answer is larger than %d bytes", int64(e))
}
