package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestStandaloneFiles(t *testing.T) {
	for _, file := range []string{"minimal", "full"} {
		if _, err := ParseStandalone([]string{"--config", "testdata/standalone/" + file + ".good.yaml"}); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	badFiles(t, "testdata/standalone/*.bad.yaml", 15, func(args []string) error {
		_, err := ParseStandalone(args)
		return err
	})
}

func TestStandaloneDefaults(t *testing.T) {
	s, err := ParseStandalone(nil)
	if err != nil || !reflect.DeepEqual(s, DefaultStandalone()) {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestStandaloneBadFlags(t *testing.T) {
	for args, want := range map[string]string{
		"--data-dir=":                                                          "--data-dir must name a folder",
		"--listen=6443":                                                        "--listen must be a host:port such as 127.0.0.1:8443 or [::]:8443, not \"6443\"",
		"--kubeconfig=x":                                                       "--kubeconfig is not a flag; see kubeweir standalone --help",
		"--etcd-server=x":                                                      "--etcd-server is not a flag; did you mean --etcd-servers?",
		"--etcd-servers=x":                                                     "--etcd-servers must be a URL such as https://127.0.0.1:2379, not \"x\"",
		"--client-ca-file=testdata/files/junk":                                 "--client-ca-file must be a file of certificates in PEM, and testdata/files/junk is not: it has none",
		"--etcd-cafile=testdata/files/junk":                                    "--etcd-cafile must be a file of certificates in PEM, and testdata/files/junk is not: it has none",
		"--etcd-certfile=/none":                                                "--etcd-certfile cannot be used: /none does not exist",
		"--service-cluster-ip-range=10.0.0.0/8":                                "--service-cluster-ip-range must have at least 8 addresses, and with IPv4 at most a million (/12), unlike 10.0.0.0/8",
		"--service-cluster-ip-range=10.0.0.0/24,fd00::/126":                    "--service-cluster-ip-range must have at least 8 addresses, and with IPv4 at most a million (/12), unlike fd00::/126",
		"--service-account-key-file=testdata/files/junk":                       "--service-account-key-file must be a file of public keys or certificates in PEM, and testdata/files/junk is not",
		"--service-account-issuer=":                                            "--service-account-issuer must not be empty; give a URL such as https://kubernetes.default.svc",
		"--authorization-mode=AlwaysAllow":                                     "--authorization-mode AlwaysAllow would allow everything to everybody; set --anonymous-auth to false",
		"--authorization-mode=RBAC,ABAC":                                       "--authorization-mode must be of RBAC, Node, Webhook, AlwaysAllow, AlwaysDeny, not \"ABAC\"",
		"--authorization-mode=RBAC,RBAC":                                       "--authorization-mode must name RBAC only once",
		"--authorization-mode=RBAC,Webhook":                                    "--authorization-mode needs --authorization-webhook-config-file, because it has the mode Webhook",
		"--authorization-webhook-config-file=testdata/files/junk":              "--authorization-webhook-config-file has no effect without the mode Webhook; add it to --authorization-mode",
		"--authorization-webhook-version=v2":                                   "--authorization-webhook-version must be v1 or v1beta1, not \"v2\"",
		"--authentication-token-webhook-version=v2":                            "--authentication-token-webhook-version must be v1 or v1beta1, not \"v2\"",
		"--oidc-issuer-url=https://issuer.example":                             "--oidc-issuer-url and the other settings of the issuer have no effect without --oidc-client-id; set that too",
		"--oidc-groups-claim=groups":                                           "--oidc-client-id and the other settings of the issuer have no effect without --oidc-issuer-url; set that too",
		"--authentication-config=/none":                                        "--authentication-config cannot be used: /none does not exist",
		"--authorization-config=/none":                                         "--authorization-config cannot be used: /none does not exist",
		"--authorization-config=testdata/files/junk --authorization-mode=Node": "--authorization-config cannot be set together with --authorization-mode or the settings of its webhook; name the modes in the file",
		"--authentication-config=testdata/files/junk --oidc-issuer-url=https://issuer.example --oidc-client-id=kubernetes": "--authentication-config cannot be set together with --oidc-issuer-url; name the issuer in the file",
		"--oidc-issuer-url=http://issuer.example --oidc-client-id=kubernetes":                                              "--oidc-issuer-url must be a URL such as https://issuer.example, not \"http://issuer.example\"",
		"--oidc-issuer-url=https://issuer.example --oidc-client-id=kubernetes --oidc-required-claim=team":                  "--oidc-required-claim must be claims with their values, such as team=storage",
		"--service-node-port-range=1":                                              "--service-node-port-range must be a range of ports such as 30000-32767, not \"1\"",
		"--enable-admission-plugins=AlwaysDeni":                                    `--enable-admission-plugins must name admission plugins, and there is no "AlwaysDeni"; did you mean "AlwaysDeny"?`,
		"--disable-admission-plugins=Priority --enable-admission-plugins=Priority": "--disable-admission-plugins must not name Priority, which --enable-admission-plugins enables",
		"--controllers=everything":                                                 `--controllers must name controllers, and there is no "everything"; see --controllers in kube-controller-manager --help`,
		"--controllers=*,-jobs":                                                    `--controllers must name controllers, and there is no "jobs"; did you mean "job"?`,
		"--enable-admission-plugins=":                                              "--enable-admission-plugins must not be empty; name plugins, for instance LimitRanger",
		"start":                                                                    "unexpected argument \"start\"; settings are given as flags, see kubeweir standalone --help",
		"--tls-private-key-file=testdata/files/ca":                                 "--tls-private-key-file cannot be used: testdata/files/ca does not exist",
	} {
		_, err := ParseStandalone(strings.Fields(args))
		if err == nil || err.Error() != want {
			t.Errorf("%s\ngot  %v\nwant %s", args, err, want)
			continue
		}
		checkSentence(t, err)
	}
}

// TestStandaloneFullFile: the file sets every field, to something else than the
// default, and relative to itself.
func TestStandaloneFullFile(t *testing.T) {
	s, err := ParseStandalone([]string{"--config", "testdata/standalone/full.good.yaml", "--event-ttl=2h"})
	if err != nil {
		t.Fatal(err)
	}
	def := DefaultStandalone().program().settings()
	exclusive := []string{"authentication.configFile", "authorization.configFile"} // of others in the file
	for i, setting := range s.program().settings() {
		if reflect.DeepEqual(setting.value, def[i].value) != slices.Contains(exclusive, setting.path) {
			t.Errorf("%s is %v, the default", setting.path, getText(reflect.ValueOf(setting.value).Elem()))
		}
	}
	if s.DataDir != "testdata/standalone/data" || s.Authentication.TokenAuthFile != "testdata/standalone/tokens.csv" ||
		!slices.Equal(s.Authentication.ServiceAccounts.KeyFiles, []string{"testdata/files/tls.crt"}) || s.EventTTL.Hours() != 2 {
		t.Errorf("%+v", s)
	}
	if !slices.Equal(s.Admission.DisablePlugins, []string{"ServiceAccount", "Priority"}) || len(s.Etcd.Servers) != 2 {
		t.Errorf("%+v, %+v", s.Admission, s.Etcd)
	}
}

func TestStandaloneHelp(t *testing.T) {
	help := StandaloneFlags().Set().FlagUsages()
	for _, s := range DefaultStandalone().program().settings() {
		if s.flag != "" && !strings.Contains(help, "--"+s.flag+" ") {
			t.Errorf("--%s is not in the help", s.flag)
		}
	}
}

func TestParsePortRange(t *testing.T) {
	if from, to, err := ParsePortRange("30000-32767"); from != 30000 || to != 32767 || err != nil {
		t.Errorf("%d, %d, %v", from, to, err)
	}
}
