// Package rejectiontest checks in tests that a rejection is counted, and that it is what
// docs/reasons.md promises.
package rejectiontest

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/reason"
)

// Response is the response that the client received.
type Response struct {
	Code        int
	ContentType string
	RetryAfter  string
	Body        string
}

// Check fails the test unless registry has counted exactly one rejection, why, and the response has
// the code, the form, the reason and the Retry-After of the row of why, and a message that contains
// says.
func Check(t testing.TB, registry prometheus.Gatherer, why reason.Rejection, text string, got Response) {
	t.Helper()
	if counted := counted(t, registry); !slices.Equal(counted, []string{why.String()}) {
		t.Errorf("counted %q, want %s once", counted, why)
	}
	row := why.Entry()
	// The text after the first semicolon or period is about other cases.
	promise, _, _ := strings.Cut(row.Client, ";")
	promise, _, _ = strings.Cut(promise, ". ")
	if got.Code != row.Code {
		t.Errorf("status %d, want %d: %s", got.Code, row.Code, got.Body)
	}
	if strings.HasPrefix(promise, "Plain text") {
		if !strings.HasPrefix(got.ContentType, "text/plain") || !strings.Contains(got.Body, text) {
			t.Errorf("%s: %q, want %q in plain text", got.ContentType, got.Body, text)
		}
	} else {
		checkStatus(t, promise, text, got)
	}
	if !keepsRetry(promise, row.Client, got.RetryAfter) {
		t.Errorf("Retry-After %q, promised: %s", got.RetryAfter, row.Client)
	}
}

// keepsRetry reports whether a Retry-After is the promised one. The row may promise it for other
// cases only.
func keepsRetry(promise, row, retry string) bool {
	switch {
	case strings.Contains(promise, "Retry-After: 1"):
		return retry == "1"
	case strings.Contains(promise, "Retry-After"):
		return retry != ""
	}
	return retry == "" || strings.Contains(row, "Retry-After")
}

var promisedReason = regexp.MustCompile("^Status `([A-Za-z]+)`")

// checkStatus checks a response that is a Status.
func checkStatus(t testing.TB, promise, text string, got Response) {
	t.Helper()
	var status metav1.Status
	if err := json.Unmarshal([]byte(got.Body), &status); err != nil || got.ContentType != "application/json" {
		t.Errorf("%s: no Status in JSON, %v: %q", got.ContentType, err, got.Body)
		return
	}
	if status.Kind != "Status" || status.APIVersion != "v1" || status.Status != metav1.StatusFailure || int(status.Code) != got.Code {
		t.Errorf("not a failure with code %d: %s", got.Code, got.Body)
	}
	switch named := promisedReason.FindStringSubmatch(promise); {
	case named != nil && string(status.Reason) != named[1]:
		t.Errorf("the reason is %q, promised: %s", status.Reason, promise)
	case named == nil && !strings.HasPrefix(promise, "Status "):
		t.Errorf("the row promises neither a Status nor plain text: %s", promise)
	}
	if text == "" || !strings.Contains(status.Message, text) {
		t.Errorf("the message is %q, want %q in it", status.Message, text)
	}
}

// counted returns the reasons of the counted rejections, each as often as it was counted.
func counted(t testing.TB, registry prometheus.Gatherer) (reasons []string) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "kubeweir_rejections_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for range int(m.GetCounter().GetValue()) {
				reasons = append(reasons, m.GetLabel()[0].GetValue())
			}
		}
	}
	return reasons
}

// CheckResponse is Check for a response of a handler, which it completes.
func CheckResponse(t *testing.T, registry *prometheus.Registry, why reason.Rejection, text string, resp *api.Response) {
	t.Helper()
	Check(t, registry, why, text, Response{
		Code: resp.Status, ContentType: resp.Header.Get("Content-Type"), RetryAfter: resp.Header.Get("Retry-After"), Body: string(resp.Body),
	})
	if resp.Done != nil {
		resp.Done(int64(len(resp.Body)), nil)
	}
}
