package edge

import (
	"context"
	"strings"
	"testing"

	"github.com/kubeweir/kubeweir/api"
	"github.com/kubeweir/kubeweir/reason"
)

// TestRefusalsAreCounted has a request of HTTP/1.1 for each reason for which this package refuses.
func TestRefusalsAreCounted(t *testing.T) {
	const end = "Host: x\r\n\r\n"
	for why, send := range map[reason.Refusal]string{
		reason.Malformed:       "GET / HTTP/1.1\nHost: x\n\n",
		reason.HeaderTooLarge:  "GET / HTTP/1.1\r\nA: " + strings.Repeat("b", 100<<10) + "\r\n" + end,
		reason.Expectation:     "GET / HTTP/1.1\r\nExpect: magic\r\n" + end,
		reason.ProtocolVersion: "GET / HTTP/3.1\r\n" + end,
		reason.Panicked:        "GET /panic HTTP/1.1\r\n" + end,
		reason.NoResponse:      "GET /nil HTTP/1.1\r\n" + end,
	} {
		t.Run(why.String(), func(t *testing.T) {
			ts := startServer(t, func(_ context.Context, r *api.Request) *api.Response {
				if r.Path == "/panic" {
					panic("at a request")
				}
				return nil
			})
			c := ts.dial()
			c.send("%s", send)
			if resp, body := c.response("GET"); resp.StatusCode != why.Entry().Code {
				t.Errorf("answered %d, want %d: %s", resp.StatusCode, why.Entry().Code, body)
			}
			families, err := ts.registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			counted := map[string]float64{}
			for _, f := range families {
				for _, m := range f.GetMetric() {
					if n := m.GetCounter().GetValue(); f.GetName() == "kubeweir_refusals_total" && n > 0 {
						counted[m.GetLabel()[0].GetValue()] = n
					}
				}
			}
			if len(counted) != 1 || counted[why.String()] != 1 {
				t.Errorf("counted %v", counted)
			}
		})
	}
}
