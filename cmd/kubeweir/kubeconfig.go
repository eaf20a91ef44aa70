package main

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/internal/clusterprofile"
	"github.com/kubeweir/kubeweir/origin/pki"
)

// kubeconfigSettings returns the gateway's flags that determine its address and what it serves.
func kubeconfigSettings() []string {
	return []string{
		"config", "listen", "cert-dir", "clusterprofile-provider-file", "clusterprofile-kubeconfig", "clusterprofile-context",
		"clusterprofile-namespace", "clusterprofile-selector", "clusterprofile-max",
	}
}

// kubeconfigOptions are options that are not settings of the gateway.
type kubeconfigOptions struct {
	server, caFile, current, output string
	force                           bool
	tokenFile, execCommand          string
	execArgs                        []string
	execVersion                     string
}

// clusterPlaceholder stands for the name of the cluster in the credential options.
const clusterPlaceholder = "{cluster}"

// newKubeconfig is `kubeweir kubeconfig`.
func newKubeconfig() *cobra.Command {
	settings := config.GatewayFlags()
	var o kubeconfigOptions
	c := &cobra.Command{
		Use:   "kubeconfig",
		Short: "Write a kubeconfig for the clients of a gateway.",
		Long: `The kubeconfig has a context for each cluster of the gateway's configuration, and for each
ClusterProfile that the hub has now. For a gateway of a single cluster it has one context,
kubeweir. The server is the path of the cluster if that is served, otherwise its first host. The
CA is the one that the gateway generated, or the one in the file of its certificate.

Each context has its own user, because credentials are valid for one cluster only. The users are
empty unless --token-file or --exec-command is given; fill them with kubectl config
set-credentials. {cluster} in these flags stands for the name of the cluster.`,
		Example: `  # On the gateway's machine.
  kubeweir kubeconfig --config gateway.yaml --server https://gateway.example.com:8443 -o clusters

  # With tokens from a credential plugin.
  kubeweir kubeconfig --config gateway.yaml --exec-command login --exec-args --audience={cluster}`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := settings.LoadElsewhere()
			if err != nil {
				return usageError{err}
			}
			return writeKubeconfig(c, cfg, &o)
		},
	}
	f := c.Flags()
	f.StringVar(&o.server, "server", "", "`URL` of the gateway for clients (default that of --listen on this machine)")
	f.StringVar(&o.caFile, "certificate-authority", "", "PEM `file` with the CA of the gateway's certificate (default the generated one)")
	f.StringVar(&o.current, "current-context", "", "`name` of the current context (default the first)")
	f.StringVarP(&o.output, "output", "o", "", "`file` to write, readable by its owner only (default standard output)")
	f.BoolVar(&o.force, "force", false, "overwrite an existing file")
	f.StringVar(&o.tokenFile, "token-file", "", "`file` with the user's token on the client's machine")
	f.StringVar(&o.execCommand, "exec-command", "", "credential `plugin` of the user")
	f.StringSliceVar(&o.execArgs, "exec-args", nil, "comma-separated `arguments` of the plugin")
	f.StringVar(&o.execVersion, "exec-api-version", "client.authentication.k8s.io/v1", "API `version` of the plugin")
	f.Lookup("exec-args").DefValue = ""
	f.VisitAll(func(flag *pflag.Flag) {
		_ = f.SetAnnotation(flag.Name, config.SectionAnnotation, []string{"Kubeconfig"})
	})
	settings.Set().VisitAll(func(flag *pflag.Flag) {
		if slices.Contains(kubeconfigSettings(), flag.Name) {
			f.AddFlag(flag)
		}
	})
	return c
}

func writeKubeconfig(c *cobra.Command, cfg *config.Gateway, o *kubeconfigOptions) error {
	if o.tokenFile != "" && o.execCommand != "" {
		return usageErrorf("--token-file and --exec-command both set the user's credentials; give one of them")
	}
	server, err := serverURL(cfg, o.server)
	if err != nil {
		return err
	}
	ca, err := authorityOf(cfg, o.caFile)
	if err != nil {
		return err
	}
	if ca == nil {
		fmt.Fprintf(c.ErrOrStderr(), "kubeweir: %s contains no CA; set --certificate-authority, unless the systems of the clients trust the certificate\n", cfg.TLS.CertFile)
	}
	if err := addProfiles(c.Context(), cfg); err != nil {
		return err
	}
	out, err := kubeconfigOf(cfg, server, ca, o)
	if err != nil {
		return err
	}
	text, err := clientcmd.Write(*out)
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	if o.output == "" {
		_, err = c.OutOrStdout().Write(text)
		return err
	}
	if _, err := os.Lstat(o.output); !o.force && !errors.Is(err, fs.ErrNotExist) {
		return usageErrorf("%s already exists; set --force to overwrite it", o.output)
	}
	return pki.WriteFile(o.output, text)
}

// addProfiles adds the clusters of the hub's ClusterProfiles, as the gateway does.
func addProfiles(ctx context.Context, cfg *config.Gateway) error {
	p := &cfg.ClusterProfiles
	if !p.On() {
		return nil
	}
	hub, err := clusterprofile.HubConfig(p.Kubeconfig, p.Context)
	if err != nil {
		return err
	}
	follower, err := clusterprofile.NewFollower(clusterprofile.Options{
		Config: hub, Namespace: p.Namespace, LabelSelector: p.LabelSelector, Max: p.Max, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	list, err := follower.List(ctx)
	if err != nil {
		return fmt.Errorf("the ClusterProfiles of the hub: %w", err)
	}
	for i := range list {
		name := list[i].ClusterName(p.Namespace != "")
		if !slices.ContainsFunc(cfg.Clusters, func(c config.Cluster) bool { return c.Name == name }) {
			cfg.Clusters = append(cfg.Clusters, *cfg.ProfiledCluster(name))
		}
	}
	if len(cfg.Clusters) == 0 {
		return errors.New("the hub has no ClusterProfiles with the configured namespace and labels")
	}
	return nil
}

// kubeconfigOf returns a kubeconfig with a context for each cluster.
func kubeconfigOf(cfg *config.Gateway, server *url.URL, ca []byte, o *kubeconfigOptions) (*clientcmdapi.Config, error) {
	out := clientcmdapi.NewConfig()
	add := func(name string, at *url.URL) {
		out.Clusters[name] = &clientcmdapi.Cluster{Server: at.String(), CertificateAuthorityData: ca}
		out.AuthInfos[name] = o.user(name)
		out.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
		out.CurrentContext = cmp.Or(out.CurrentContext, name)
	}
	if len(cfg.Clusters) == 0 {
		add("kubeweir", server)
	}
	for i := range cfg.Clusters {
		cluster, at := &cfg.Clusters[i], *server
		if cluster.PathPrefix {
			at.Path = strings.TrimSuffix(at.Path, "/") + config.ClusterPathPrefix + cluster.Name
		} else if port := at.Port(); port != "" {
			at.Host = net.JoinHostPort(cluster.Hosts[0], port)
		} else {
			at.Host = cluster.Hosts[0]
		}
		add(cluster.Name, &at)
	}
	if o.current != "" {
		if out.Contexts[o.current] == nil {
			return nil, usageErrorf("--current-context must be the name of a cluster of the configuration, not %q", o.current)
		}
		out.CurrentContext = o.current
	}
	return out, nil
}

// user returns the credentials that clients of a cluster use.
func (o *kubeconfigOptions) user(cluster string) *clientcmdapi.AuthInfo {
	fill := func(text string) string { return strings.ReplaceAll(text, clusterPlaceholder, cluster) }
	user := &clientcmdapi.AuthInfo{TokenFile: fill(o.tokenFile)}
	if o.execCommand != "" {
		user.Exec = &clientcmdapi.ExecConfig{
			APIVersion: o.execVersion, Command: o.execCommand, ProvideClusterInfo: true,
			InteractiveMode: clientcmdapi.IfAvailableExecInteractiveMode,
		}
		for _, arg := range o.execArgs {
			user.Exec.Args = append(user.Exec.Args, fill(arg))
		}
	}
	return user
}

// serverURL returns the URL at which clients reach the gateway.
func serverURL(cfg *config.Gateway, given string) (*url.URL, error) {
	if given != "" {
		at, err := url.Parse(given)
		if err != nil || at.Scheme != "https" || at.Host == "" || at.RawQuery != "" || at.Fragment != "" || at.User != nil {
			return nil, usageErrorf("--server must be an address such as https://gateway.example.com:8443, not %q", given)
		}
		return at, nil
	}
	host, port, err := net.SplitHostPort(cfg.Listen)
	if err != nil || port == "0" {
		return nil, usageErrorf("the gateway's URL is unknown; set --server, such as https://gateway.example.com:8443")
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return &url.URL{Scheme: "https", Host: net.JoinHostPort(host, port)}, nil
}

// authorityOf returns the CA certificates that verify the gateway, or nil if clients must rely on
// their system's CAs.
func authorityOf(cfg *config.Gateway, given string) ([]byte, error) {
	switch {
	case given != "":
		all, _, err := certificatesIn(given)
		if err != nil {
			return nil, usageErrorf("--certificate-authority: %w", err)
		}
		return all, nil
	case cfg.TLS.CertFile != "":
		_, authorities, err := certificatesIn(cfg.TLS.CertFile)
		return authorities, err
	}
	dir := cfg.CertDir
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return nil, usageErrorf("the gateway's CA is not known; name it with --certificate-authority")
		}
		dir = filepath.Join(cache, "kubeweir")
	}
	file := filepath.Join(dir, "ca.crt")
	all, _, err := certificatesIn(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, usageErrorf("%s, the gateway's own CA, does not exist: start the gateway once on this machine, or name its CA with --certificate-authority", file)
	}
	return all, err
}

// certificatesIn reads the certificates of a file. authorities are those that can verify others: CA
// certificates and self-signed ones.
func certificatesIn(file string) (all, authorities []byte, err error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, err
	}
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", file, err)
		}
		text := pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})
		all = append(all, text...)
		if cert.IsCA || cert.CheckSignatureFrom(cert) == nil || string(cert.RawIssuer) == string(cert.RawSubject) {
			authorities = append(authorities, text...)
		}
	}
	if all == nil {
		return nil, nil, fmt.Errorf("%s has no certificate in PEM", file)
	}
	return all, authorities, nil
}
