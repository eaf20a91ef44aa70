package apiservers

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	many := strings.Repeat("https://h:1,", Most) + "https://h:1"
	for _, c := range []struct{ items, want, err string }{
		{"https://a:6443,https://b:6443", "https://a:6443 https://b:6443", ""},
		{"https://A", "https://a", ""},
		{"https://[::1]:6443/", "https://[::1]:6443", ""},
		{"http://127.0.0.1:8001,http://127.0.0.1:8002", "http://127.0.0.1:8001 http://127.0.0.1:8002", ""},
		{"dns:///api.example.com:6443", "api.example.com 6443", ""},
		{"endpointslices", "slices", ""},
		{"https://a:6443,http://b:6443", "", "must have the same scheme, https or http, in all addresses"},
		{"https://a,https://a:443", "", "must name each server once, and names https://a:443 twice"},
		{"https://a:6443/api", "", `must hold addresses without path, query or user, such as https://a:6443, not "https://a:6443/api"`},
		{"https://me:secret@a:6443", "", `must hold addresses without path, query or user, such as https://a:6443, not "https://me:xxxxx@a:6443"`},
		{"a:6443", "", `must hold addresses such as https://10.0.0.1:6443, or be one dns:///host:port or endpointslices, not "a:6443"`},
		{"", "", `must hold addresses such as https://10.0.0.1:6443, or be one dns:///host:port or endpointslices, not ""`},
		{"https://a:99999", "", `must hold addresses such as https://10.0.0.1:6443, or be one dns:///host:port or endpointslices, not "https://a:99999"`},
		{"ftp://a", "", `must hold addresses such as https://10.0.0.1:6443, or be one dns:///host:port or endpointslices, not "ftp://a"`},
		{"https://a,endpointslices", "", `must not have anything beside "endpointslices", which finds all servers`},
		{"dns://a:6443", "", `must have a name and a port after dns, such as dns:///api.example.com:6443, not "dns://a:6443"`},
		{"dns:///a", "", `must have a name and a port after dns, such as dns:///api.example.com:6443, not "dns:///a"`},
		{"dns:///10.0.0.1:6443", "", `must have a name and a port after dns, such as dns:///api.example.com:6443, not "dns:///10.0.0.1:6443"`},
		{many, "", "must name at most 16 servers, not 17"},
	} {
		l, _, err := Parse(strings.Split(c.items, ","))
		if got := describe(err, &l); got != c.want+c.err {
			t.Errorf("%s:\n got %s\nwant %s", c.items, got, c.want+c.err)
		}
	}
	if l, _, err := Parse(nil); err != nil || l.Several() {
		t.Errorf("nothing: %v %v", l, err)
	}
}

func describe(err error, l *List) string {
	switch {
	case err != nil:
		return err.Error()
	case l.Slices:
		return "slices"
	case l.Name != "":
		return l.Name + " " + l.Port
	}
	var urls []string
	for _, u := range l.URLs {
		urls = append(urls, u.String())
	}
	return strings.Join(urls, " ")
}
