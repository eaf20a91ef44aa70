package proxy

import (
	"strings"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/cache/watch"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/proxy/policy"
)

// TestCoalesceParameter: a watch may ask for its events to wait, by rule they wait at least so
// long; what cannot be read is a 400 that names the parameter, and what has it and is no watch
// is forwarded as it came.
func TestCoalesceParameter(t *testing.T) {
	const pods = "GET /api/v1/pods?resourceVersion=0&"
	rules := func(o *Options) {
		o.Policy.Rules = []policy.Rule{
			{Match: policy.Match{UserAgents: []string{"page"}}, Settings: policy.Settings{Coalesce: time.Second, WatchBytesPerSecond: 1 << 20}},
			{Match: policy.Match{UserAgents: []string{"controller"}}, Settings: policy.Settings{Coalesce: -1}},
			{Match: policy.Match{UserAgents: []string{"bounded"}}, Settings: policy.Settings{WatchBytesPerSecond: 1 << 20}},
		}
	}
	everybody := func(o *Options) {
		rules(o)
		o.Policy.Pace = watch.Pace{Coalesce: 100 * time.Millisecond, BytesPerSecond: 1 << 10}
	}
	for _, c := range []struct {
		name, line, agent string
		options           func(*Options)
		status            int
		message, header   string
		forwarded         bool
	}{
		{name: "none", line: pods + "watch=1", status: 200},
		{name: "asked for", line: pods + "watch=1&coalesce=500ms", status: 200, header: "500ms"},
		{name: "escaped", line: pods + "watch=1&%63oalesce=1%2e5s", status: 200, header: "1.5s"},
		{name: "by path", line: "GET /api/v1/watch/pods?coalesce=30s&resourceVersion=0", status: 200, header: "30s"},
		{name: "by rule", line: pods + "watch=1", agent: "page", status: 200, header: "1s"},
		{name: "less than the rule", line: pods + "watch=1&coalesce=10ms", agent: "page", status: 200, header: "1s"},
		{name: "more than the rule", line: pods + "watch=1&coalesce=2s", agent: "page", status: 200, header: "2s"},
		{name: "a bound of bytes alone", line: pods + "watch=1", agent: "bounded", status: 200},
		{name: "everybody", line: pods + "watch=1", options: everybody, status: 200, header: "100ms"},
		{name: "everybody but who is excepted", line: pods + "watch=1", options: everybody, agent: "controller", status: 200},
		{name: "who is excepted asks", line: pods + "watch=1&coalesce=1s", options: everybody, agent: "controller", status: 200, header: "1s"},

		{name: "empty", line: pods + "watch=1&coalesce=", status: 400, message: "parameter coalesce: empty value"},
		{name: "without value", line: pods + "watch=1&coalesce", status: 400, message: "parameter coalesce: empty value"},
		{name: "no duration", line: pods + "watch=1&coalesce=500", status: 400, message: `parameter coalesce: it must be a duration such as 500ms or 2s, not \"500\"`},
		{name: "too short", line: pods + "watch=1&coalesce=9ms", status: 400, message: "parameter coalesce: it must be from 10ms to 30s, not 9ms"},
		{name: "too long", line: pods + "watch=1&coalesce=31s", status: 400, message: "parameter coalesce: it must be from 10ms to 30s, not 31s"},
		{name: "negative", line: pods + "watch=1&coalesce=-1s", status: 400, message: "parameter coalesce: "},
		{name: "overflowing", line: pods + "watch=1&coalesce=" + strings.Repeat("9", 400) + "s", status: 400, message: "parameter coalesce: "},

		{name: "twice", line: pods + "watch=1&coalesce=1s&coalesce=1s", status: 200, forwarded: true},
		{name: "list", line: pods + "coalesce=1s", status: 200, forwarded: true},
		{name: "get", line: "GET /api/v1/namespaces/default/pods/a?coalesce=1s", status: 200, forwarded: true},
		{name: "unknown beside", line: pods + "watch=1&coalesce=1s&calm=1", status: 200, forwarded: true},
		{name: "not cached", line: "GET /api/v1/nothings?watch=1&coalesce=x", status: 200, forwarded: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				options := c.options
				if options == nil {
					options = rules
				}
				b := newGatewayBench(t, options)
				resp := b.gateway.Serve(t.Context(), request(c.line, "User-Agent: "+c.agent))
				if resp.Status != c.status || !strings.Contains(string(resp.Body), c.message) || resp.Header.Get(coalesceHeader) != c.header {
					t.Errorf("%d %q, %s", resp.Status, resp.Header.Get(coalesceHeader), resp.Body)
				}
				forwarded := len(b.upstream.forwarded) > 0
				if forwarded != c.forwarded || forwarded && b.upstream.forwarded[0].request.RawQuery != strings.SplitN(c.line, "?", 2)[1] {
					t.Errorf("forwarded: %+v", b.upstream.forwarded)
				}
				if resp.Stream != nil {
					resp.Stream.Stop()
				}
				resp.Done(0, nil)
			})
		})
	}
}
