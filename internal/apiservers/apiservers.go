// Package apiservers parses the setting that lists a cluster's API servers.
package apiservers

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// List describes where to find the API servers of one cluster, in one of three ways. The zero value
// means the server of the kubeconfig.
type List struct {
	// URLs are the URLs of the servers: a scheme, a host and optionally a port.
	URLs []*url.URL
	// Name and Port belong to a DNS name all of whose addresses are servers.
	Name, Port string
	// Slices means that the servers are the endpoints of the Service kubernetes.
	Slices bool
}

// Most is the maximum number of servers of one cluster.
const Most = 16

// FromSlices is the value of the setting that sets List.Slices.
const FromSlices = "endpointslices"

const dnsScheme = "dns:///"

// Several reports whether l is set.
func (l *List) Several() bool { return len(l.URLs) > 0 || l.Name != "" || l.Slices }

// Parse parses a setting. The error says what the setting must be, and so begins with a verb; index
// is that of the item it is about.
func Parse(items []string) (l List, index int, err error) {
	seen := make(map[string]bool)
	for i, item := range items {
		switch {
		case item == FromSlices || strings.HasPrefix(item, "dns:"):
			if len(items) > 1 {
				return List{}, i, fmt.Errorf("must not have anything beside %q, which finds all servers", item)
			}
			if item == FromSlices {
				return List{Slices: true}, 0, nil
			}
			if l.Name, l.Port, err = parseDNS(item); err != nil {
				return List{}, i, err
			}
			return l, 0, nil
		case len(items) > Most:
			return List{}, Most, fmt.Errorf("must name at most %d servers, not %d", Most, len(items))
		}
		u, err := parseURL(item)
		switch {
		case err != nil:
			return List{}, i, err
		case len(l.URLs) > 0 && u.Scheme != l.URLs[0].Scheme:
			return List{}, i, errors.New("must have the same scheme, https or http, in all addresses")
		case seen[address(u)]:
			return List{}, i, fmt.Errorf("must name each server once, and names %s twice", item)
		}
		seen[address(u)] = true
		l.URLs = append(l.URLs, u)
	}
	return l, 0, nil
}

func parseURL(item string) (*url.URL, error) {
	u, err := url.Parse(item)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || !validPort(u.Port(), true) {
		return nil, fmt.Errorf("must hold addresses such as https://10.0.0.1:6443, or be one %shost:port or %s, not %s", dnsScheme, FromSlices, quoted(item))
	}
	if u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return nil, fmt.Errorf("must hold addresses without path, query or user, such as %s://%s, not %s", u.Scheme, u.Host, quoted(item))
	}
	return &url.URL{Scheme: u.Scheme, Host: strings.ToLower(u.Host)}, nil
}

func parseDNS(item string) (name, port string, err error) {
	rest, ok := strings.CutPrefix(item, dnsScheme)
	if ok {
		name, port, err = net.SplitHostPort(rest)
	}
	if !ok || err != nil || name == "" || strings.ContainsAny(name, "/ ?#@") || !validPort(port, false) || net.ParseIP(name) != nil {
		return "", "", fmt.Errorf("must have a name and a port after dns, such as %sapi.example.com:6443, not %s", dnsScheme, quoted(item))
	}
	return name, port, nil
}

func validPort(port string, optional bool) bool {
	if port == "" {
		return optional
	}
	n, err := strconv.Atoi(port)
	return err == nil && n > 0 && n < 1<<16
}

// address returns the host and port that identify a server.
func address(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// quoted quotes an item for a message, abbreviated if it is long.
func quoted(item string) string {
	const most = 100
	if u, err := url.Parse(item); err == nil && u.User != nil {
		item = u.Redacted()
	}
	if len(item) > most {
		item = item[:most] + "..."
	}
	return strconv.Quote(item)
}
