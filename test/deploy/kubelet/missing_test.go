//go:build linux

package kubelet

import (
	"testing"
)

// TestMissingReferences checks what users read when a Secret, volume or setting that the chart
// refers to is missing or invalid: kubectl describe names the cause.
func TestMissingReferences(t *testing.T) {
	for name, c := range map[string]struct {
		make   string   // commands before the installation, in its namespace
		set    string   // values
		reads  []string // expected text in the descriptions of the pods
		mend   string   // commands after which the pod becomes ready; "" if not tested
		broken bool     // the program reports the cause, also in its log
	}{
		"tls-secret": {
			set:   "tls.source=existingSecret,tls.existingSecret=web",
			reads: []string{`MountVolume.SetUp failed for volume "tls" : secret "web" not found`},
			mend:  "kubectl create secret tls web --cert $CERT --key $KEY",
		},
		"tls-key": {
			make:  "kubectl create secret generic web --from-literal=tls.crt=x",
			set:   "tls.source=existingSecret,tls.existingSecret=web",
			reads: []string{`MountVolume.SetUp failed for volume "tls" : references non-existent secret key: tls.key`},
		},
		"tls-wrong": {
			make:   "kubectl create secret generic web --from-literal=tls.crt=x --from-literal=tls.key=x",
			set:    "tls.source=existingSecret,tls.existingSecret=web",
			reads:  []string{"kubeweir: ", "/etc/kubeweir/tls/tls.crt"},
			broken: true,
		},
		"client-ca": {
			set:   "clientCA.existingConfigMap=clients",
			reads: []string{`MountVolume.SetUp failed for volume "client-ca" : configmap "clients" not found`},
			mend:  "kubectl create configmap clients --from-file ca.crt=$CLIENTCA",
		},
		"client-ca-key": {
			make:  "kubectl create configmap clients --from-literal=client-ca.crt=x",
			set:   "clientCA.existingConfigMap=clients",
			reads: []string{`MountVolume.SetUp failed for volume "client-ca" : configmap references non-existent config key: ca.crt`},
		},
		"client-ca-wrong": {
			make:   "kubectl create configmap clients --from-literal=ca.crt=x",
			set:    "clientCA.existingConfigMap=clients",
			reads:  []string{"kubeweir: --client-ca-file must be a file of certificates in PEM, and /etc/kubeweir/client-ca/ca.crt is not: it has none"},
			broken: true,
		},
		"config": {
			set:   "existingConfigMap=settings",
			reads: []string{`MountVolume.SetUp failed for volume "config" : configmap "settings" not found`},
			mend:  "kubectl create configmap settings --from-literal=config.yaml='log: {level: debug}'",
		},
		"config-wrong": {
			make:   "kubectl create configmap settings --from-literal=config.yaml='log: {lvl: debug}'",
			set:    "existingConfigMap=settings",
			reads:  []string{`kubeweir: /etc/kubeweir/config/config.yaml:1: "lvl" is not a field of log; there are format, level`},
			broken: true,
		},
		"config-key": {
			make:   "kubectl create configmap settings --from-literal=gateway.yaml='log: {level: debug}'",
			set:    "existingConfigMap=settings",
			reads:  []string{"kubeweir: --config: /etc/kubeweir/config/config.yaml does not exist"},
			broken: true,
		},
		"upstream": {
			set:   "upstream.existingSecret=cluster",
			reads: []string{`MountVolume.SetUp failed for volume "upstream" : secret "cluster" not found`},
		},
		"upstream-wrong": {
			make:   "kubectl create secret generic cluster --from-literal=kubeconfig=x",
			set:    "upstream.existingSecret=cluster",
			reads:  []string{"kubeweir: ", "/etc/kubeweir/upstream/kubeconfig"},
			broken: true,
		},
		"state-key": {
			set:   "state.enabled=true,state.keySecret=sealing",
			reads: []string{`MountVolume.SetUp failed for volume "state-key" : secret "sealing" not found`},
		},
		"token": {
			set:    "serviceAccount.automount=false",
			reads:  []string{"kubeweir: no kubeconfig is given, and the token of the pod's service account is not mounted (automountServiceAccountToken)"},
			broken: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSession(t)
			ns := "missing-" + name
			namespace(t, ns, "restricted")
			s.enter("kubectl config set-context --current --namespace " + ns)
			if c.make != "" {
				s.enter(c.make)
			}
			s.enter("helm install " + ns + " deploy/charts/kubeweir --set fullnameOverride=" + ns + ",replicas=1," + c.set)
			s.reads("kubectl describe pods --show-events", c.reads...)
			if c.broken {
				s.reads("kubectl logs deployment/"+ns, c.reads...)
			}
			if c.mend != "" {
				serving, err := kube.IssueServingCert("localhost")
				must(t, err)
				s.env = append(s.env, "CERT="+serving.CertFile, "KEY="+serving.KeyFile, "CLIENTCA="+kube.ClientCAFile())
				s.enter(c.mend)
				ready(t, ns, 1)
			}
			s.enter("helm uninstall " + ns)
		})
	}
}

// TestMissingRights checks a gateway without its rights: it starts, because it forwards what it may
// not read, but it cannot authenticate anyone. Both its log and its responses say what to do.
func TestMissingRights(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	const ns = "missing-rights"
	namespace(t, ns, "restricted")
	s.enter("helm install kubeweir-rights deploy/charts/kubeweir -n " + ns + " --set rbac.create=false,replicas=1,fullnameOverride=rights")
	ready(t, ns, 1)
	s.enter("kubectl -n " + ns + " get configmap rights-ca -o jsonpath='{.data.ca\\.crt}' > ca.crt")
	s.reads("kubectl -n "+ns+" logs deployment/rights", "the gateway lacks a right at the cluster", "`kubeweir rbac` prints the rights it needs")
	stop := s.forward("kubectl -n " + ns + " port-forward service/rights 8443:443")
	defer stop()
	// kubectl retries for ten seconds before it reports the error.
	s.reads("kubectl --server https://localhost:8443 --certificate-authority ca.crt --token "+kube.AdminToken()+" get --raw /api/v1/pods",
		"the gateway cannot authenticate or authorize the request at the upstream API server, please try again later") // a heading of docs/troubleshooting.md
	s.reads("kubectl -n "+ns+" logs deployment/rights", "verb=create group=authentication.k8s.io resource=tokenreviews")
}
