package main

import (
	"time"

	"github.com/spf13/pflag"
)

type settings struct {
	Kubeconfig, Context                 string
	Listen, InsecureListen, AdminListen string
	CertFile, KeyFile, ClientCAFile     string
	Anonymous                           bool
	DrainDuration                       time.Duration
}

func parseGateway(args []string) (settings, error) {
	var s settings
	f := pflag.NewFlagSet("gateway", pflag.ContinueOnError)
	f.StringVar(&s.Kubeconfig, "kubeconfig", "", "")
	f.StringVar(&s.Context, "context", "", "")
	f.StringVar(&s.Listen, "listen", "127.0.0.1:8443", "")
	f.StringVar(&s.InsecureListen, "insecure-listen", "", "")
	f.StringVar(&s.AdminListen, "admin-listen", "127.0.0.1:9444", "")
	f.StringVar(&s.CertFile, "tls-cert-file", "", "")
	f.StringVar(&s.KeyFile, "tls-private-key-file", "", "")
	f.StringVar(&s.ClientCAFile, "client-ca-file", "", "")
	f.BoolVar(&s.Anonymous, "anonymous-auth", true, "")
	f.DurationVar(&s.DrainDuration, "drain", 5*time.Second, "")
	return s, f.Parse(args)
}
