package e2e

import (
	"crypto/tls"
	"net/url"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/test/realkube"
)

// TestTLSSettings checks that both programs accept the configured TLS versions and cipher suites,
// and no others.
func TestTLSSettings(t *testing.T) {
	const allowed, other = tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
	for name, c := range map[string]struct {
		flags  []string
		client *tls.Config
		ok     bool
	}{
		"a suite":          {[]string{"--tls-cipher-suites=" + tls.CipherSuiteName(allowed)}, &tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{allowed}}, true},
		"another suite":    {[]string{"--tls-cipher-suites=" + tls.CipherSuiteName(allowed)}, &tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{other}}, false},
		"TLS 1.2 with 1.3": {[]string{"--tls-min-version=VersionTLS13"}, &tls.Config{MaxVersion: tls.VersionTLS12}, false},
		"TLS 1.3":          {[]string{"--tls-min-version=VersionTLS13"}, &tls.Config{}, true},
		"TLS 1.2":          {nil, &tls.Config{MaxVersion: tls.VersionTLS12}, true},
		"TLS 1.1":          {nil, &tls.Config{MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS11}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for program, address := range map[string]string{
				"gateway": startGateway(t, c.flags...).URL(), "standalone": startStandalone(t, c.flags...).URL(),
			} {
				client := c.client.Clone()
				client.InsecureSkipVerify = true
				if err := handshake(t, address, client); (err == nil) != c.ok {
					t.Errorf("%s: %v", program, err)
				}
			}
		})
	}
}

// startStandalone starts a standalone server with the users of the cluster.
func startStandalone(t *testing.T, flags ...string) *realkube.Standalone {
	t.Helper()
	s, err := realkube.StartStandalone(t.Context(), realkube.StandaloneOptions{Path: bed.Program, Dir: t.TempDir(), Cluster: kube, ExtraArgs: flags})
	must(t, err)
	t.Cleanup(s.Close)
	return s
}

func handshake(t *testing.T, address string, client *tls.Config) error {
	t.Helper()
	u, err := url.Parse(address)
	must(t, err)
	conn, err := tls.Dial("tcp", u.Host, client)
	if err != nil {
		return err
	}
	return conn.Close()
}

// TestFIPS checks that both programs serve, and connect to their clusters, in Go's FIPS 140 mode.
// The test enables the mode by the environment; a program built with GOFIPS140 has it enabled.
func TestFIPS(t *testing.T) {
	ctx := deadline(t, 3*time.Minute)
	t.Setenv("GODEBUG", "fips140=on")
	g, s := startGateway(t), startStandalone(t)
	for name, c := range map[string]*client{
		"gateway": through(t, g, as(realkube.Admin)), "standalone": newClient(t, "standalone", s.URL(), as(realkube.Admin), true),
	} {
		for _, path := range []string{"/api/v1/namespaces?resourceVersion=0", "/api/v1/namespaces", "/version"} {
			if a := c.get(ctx, t, path, "application/json"); a.status != 200 {
				t.Errorf("%s: %s: %v", name, path, a)
			}
		}
		// An algorithm that is not approved shows whether the mode is enabled.
		err := handshake(t, c.url, &tls.Config{
			InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256},
		})
		if err == nil {
			t.Errorf("%s: ChaCha20-Poly1305 was negotiated", name)
		}
	}
}
