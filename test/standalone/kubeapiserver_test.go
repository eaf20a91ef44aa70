package standalone

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubeweir/kubeweir/origin/pki"
	"github.com/kubeweir/kubeweir/test/realkube"
	"github.com/kubeweir/kubeweir/test/realkube/testbed"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/serviceaccount"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// flagged is a running API server with the flags of TestEnvtestLikeKubeAPIServer.
type flagged struct {
	*testing.T
	env   *envtest.Environment
	admin *kubernetes.Clientset
	// first and second have the keys that the flags name.
	first, second *pki.Material
	// responses are compared.
	responses strings.Builder
}

// wants fails the test unless the responses contain a text.
func (f *flagged) wants(texts ...string) {
	f.Helper()
	for _, text := range texts {
		if !strings.Contains(f.responses.String(), text) {
			f.Errorf("no %q in\n%s", text, f.responses.String())
		}
	}
}

// record adds a response: what was requested, and the error or what was found.
func (f *flagged) record(request string, err error, found ...any) {
	switch {
	case err != nil:
		found = []any{err}
	case len(found) == 0:
		found = []any{"ok"}
	}
	fmt.Fprintf(&f.responses, "%s: %s", request, fmt.Sprintln(found...))
}

// must fails the test if err is not nil.
func (f *flagged) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// as returns a client of another user.
func (f *flagged) as(name string, groups ...string) *kubernetes.Clientset {
	f.Helper()
	user, err := f.env.AddUser(envtest.User{Name: name, Groups: groups}, nil)
	f.must(err)
	client, err := kubernetes.NewForConfig(user.Config())
	f.must(err)
	return client
}

// TestEnvtestLikeKubeAPIServer starts kube-apiserver itself, and kubeweir in its place, with the same
// flags, and compares the responses.
func TestEnvtestLikeKubeAPIServer(t *testing.T) {
	paths, err := realkube.Binaries(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	folders := []string{t.TempDir(), t.TempDir()}
	var keys []*pki.Material
	for _, folder := range folders {
		material, err := pki.Open(folder, pki.Options{})
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, material)
	}
	responses := func(program, dir string) map[string]string {
		out := make(map[string]string)
		t.Run(program, func(t *testing.T) {
			env := &envtest.Environment{BinaryAssetsDirectory: dir, ControlPlaneStartTimeout: time.Minute, ControlPlaneStopTimeout: time.Minute}
			env.ControlPlane.GetAPIServer().Configure().
				Set("runtime-config", "api/all=true,batch/v1=false,apps/v1/controllerrevisions=false").
				Set("authorization-mode", "Node,RBAC").Set("enable-admission-plugins", "NodeRestriction").
				Set("service-account-issuer", firstIssuer, secondIssuer).
				Set("service-account-signing-key-file", folders[0]+"/sa.key").
				Set("service-account-key-file", folders[0]+"/sa.pub", folders[1]+"/sa.pub").
				Set("service-account-max-token-expiration", "3h").Set("service-account-extend-token-expiration", "false").
				Set("service-account-jwks-uri", "https://keys.example/jwks").
				Set("service-cluster-ip-range", "10.0.0.0/16,fd00:10::/108").
				Set("requestheader-client-ca-file", folders[0]+"/front-proxy-ca.crt").Set("requestheader-allowed-names", pki.FrontProxyUser, "other-proxy").
				Set("requestheader-username-headers", "X-Remote-User", "X-Other-User").Set("requestheader-group-headers", "X-Remote-Group").
				Set("requestheader-extra-headers-prefix", "X-Remote-Extra-").
				Set("proxy-client-cert-file", folders[0]+"/front-proxy-client.crt").Set("proxy-client-key-file", folders[0]+"/front-proxy-client.key").
				Set("kubelet-certificate-authority", folders[0]+"/ca.crt").Set("kubelet-preferred-address-types", "ExternalIP,InternalIP").
				Set("kubelet-client-certificate", folders[1]+"/apiserver-kubelet-client.crt").Set("kubelet-client-key", folders[1]+"/apiserver-kubelet-client.key")
			admin := startEnvironment(t, env)
			for name, scenario := range map[string]func(context.Context, *flagged){
				"nodes": nodeScenario, "tokens": tokenScenario, "services": serviceScenario,
				"proxies": proxyScenario, "aggregation": aggregationScenario, "kubelets": kubeletScenario,
				"endpoints": endpointScenario,
				"versions":  versionScenario,
			} {
				t.Run(name, func(t *testing.T) {
					f := &flagged{T: t, env: env, admin: admin, first: keys[0], second: keys[1]}
					scenario(t.Context(), f)
					out[name] = f.responses.String()
					t.Log("\n" + out[name])
				})
			}
		})
		return out
	}
	theirs := responses("kube-apiserver", filepath.Dir(paths.KubeAPIServer))
	for name, ours := range responses("kubeweir", assets(t.Context(), t)) {
		if ours != theirs[name] {
			t.Errorf("%s of kubeweir:\n%s\n%s of kube-apiserver:\n%s", name, ours, name, theirs[name])
		}
	}
}

// nodeScenario has a node read and write what belongs to it and to another node.
func nodeScenario(ctx context.Context, f *flagged) {
	for _, name := range []string{"mine", "other"} {
		_, err := f.admin.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		f.must(err)
		_, err = f.admin.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		f.must(err)
		_, err = f.admin.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PodSpec{
				NodeName: name, Containers: []corev1.Container{{Name: "main", Image: "i"}},
				Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}}}},
			},
		}, metav1.CreateOptions{})
		f.must(err)
	}
	node := f.as("system:node:mine", "system:nodes").CoreV1()
	f.must(testbed.Poll(ctx, time.Minute, func() error { // until the graph has the pod
		_, err := node.Secrets("default").Get(ctx, "mine", metav1.GetOptions{})
		return err
	}))
	byName := func(name string) metav1.ListOptions {
		return metav1.ListOptions{FieldSelector: "metadata.name=" + name}
	}
	for _, name := range []string{"mine", "other"} {
		_, err := node.Secrets("default").Get(ctx, name, metav1.GetOptions{})
		f.record("get secret "+name, err)
		secrets, err := node.Secrets("default").List(ctx, byName(name))
		f.record("list secret "+name, err, len(secrets.Items))
		pods, err := node.Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + name})
		f.record("list pods of "+name, err, len(pods.Items))
		watch, err := node.Pods("").Watch(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + name})
		f.record("watch pods of "+name, err)
		if err == nil {
			watch.Stop()
		}
		_, err = node.Nodes().Get(ctx, name, metav1.GetOptions{})
		f.record("get node "+name, err)
		patch := []byte(`{"status":{"phase":"Running"}}`)
		_, err = node.Nodes().PatchStatus(ctx, name, patch)
		f.record("status of node "+name, err)
		_, err = node.Pods("default").Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
		f.record("status of pod "+name, err)
		for _, label := range []string{"node-restriction.kubernetes.io/zone", "kubernetes.io/arch"} {
			_, err = node.Nodes().Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:"x"}}}`, label), metav1.PatchOptions{})
			f.record("label "+label+" of "+name, err)
		}
		_, err = node.Pods("default").Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "mirror-" + name, Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "x"}},
			Spec:       corev1.PodSpec{NodeName: name, Containers: []corev1.Container{{Name: "main", Image: "i"}}},
		}, metav1.CreateOptions{})
		f.record("create a mirror pod on "+name, err)
		_, err = node.ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		f.record("get a service account", err)
		f.record("delete pod "+name, node.Pods("default").Delete(ctx, name, metav1.DeleteOptions{}))
	}
	secrets, err := node.Secrets("").List(ctx, metav1.ListOptions{})
	f.record("list secrets", err, len(secrets.Items))
	pods, err := node.Pods("").List(ctx, metav1.ListOptions{})
	f.record("list pods", err, len(pods.Items))
	_, err = f.as("system:node:mine").CoreV1().Nodes().Get(ctx, "mine", metav1.GetOptions{})
	f.record("a node without its group", err)
	_, err = f.as("kubelet", "system:nodes").CoreV1().Nodes().Get(ctx, "mine", metav1.GetOptions{})
	f.record("a user in the group of nodes", err)
	f.wants("get secret mine: ok", "no relationship found between node 'mine' and this object",
		"is not allowed to modify labels: node-restriction.kubernetes.io/zone", "can only list/watch pods with spec.nodeName field selector",
		"label kubernetes.io/arch of mine: ok", "node 'mine' cannot read 'other', only its own Node object")
}

// firstIssuer signs service account tokens, and secondIssuer is accepted, too.
const firstIssuer, secondIssuer = "https://first.example", "https://second.example"

// tokenScenario reviews tokens of both issuers and of others.
func tokenScenario(ctx context.Context, f *flagged) {
	account, err := f.admin.CoreV1().ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{})
	f.must(err)
	pod, err := f.admin.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "robot"},
		Spec:       corev1.PodSpec{ServiceAccountName: "robot", Containers: []corev1.Container{{Name: "main", Image: "i"}}},
	}, metav1.CreateOptions{})
	f.must(err)
	create := func(request authenticationv1.TokenRequestSpec) string {
		token, err := f.admin.CoreV1().ServiceAccounts("default").CreateToken(ctx, "robot", &authenticationv1.TokenRequest{Spec: request}, metav1.CreateOptions{})
		f.must(err)
		var claims struct {
			Issuer   string          `json:"iss"`
			Audience json.RawMessage `json:"aud"`
			Expires  int64           `json:"exp"`
			Issued   int64           `json:"iat"`
		}
		payload, err := base64.RawURLEncoding.DecodeString(strings.Split(token.Status.Token, ".")[1])
		f.must(err)
		f.must(json.Unmarshal(payload, &claims))
		f.record("token", nil, claims.Issuer, string(claims.Audience), claims.Expires-claims.Issued)
		return token.Status.Token
	}
	const year = 365 * 24 * 3600
	tokens := map[string]string{
		"signed here":      create(authenticationv1.TokenRequestSpec{}),
		"too long":         create(authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](year)}),
		"another audience": create(authenticationv1.TokenRequestSpec{Audiences: []string{"https://elsewhere.example"}}),
		"of a pod": create(authenticationv1.TokenRequestSpec{
			ExpirationSeconds: ptr.To[int64](serviceaccount.WarnOnlyBoundTokenExpirationSeconds),
			BoundObjectRef:    &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: "robot", UID: pod.UID},
		}),
	}
	stranger, err := pki.InMemory(pki.Options{})
	f.must(err)
	for name, signer := range map[string]struct {
		issuer string
		key    any
	}{
		"second issuer":            {secondIssuer, f.second.ServiceAccountKey},
		"first issuer, second key": {firstIssuer, f.second.ServiceAccountKey},
		"unknown issuer":           {"https://third.example", f.second.ServiceAccountKey},
		"unknown key":              {secondIssuer, stranger.ServiceAccountKey},
	} {
		generator, err := serviceaccount.JWTTokenGenerator(signer.issuer, signer.key)
		f.must(err)
		public, private, err := serviceaccount.Claims(core.ServiceAccount{ObjectMeta: account.ObjectMeta}, nil, nil, nil, nil, nil, 3600, 0, []string{firstIssuer}, nil)
		f.must(err)
		tokens[name], err = generator.GenerateToken(ctx, public, private)
		f.must(err)
	}
	for _, name := range slices.Sorted(maps.Keys(tokens)) {
		review, err := f.admin.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: tokens[name]}}, metav1.CreateOptions{})
		f.must(err)
		// kube-apiserver compares each token with that of its own loopback client first.
		reason := strings.TrimSuffix(strings.TrimPrefix(review.Status.Error, "[invalid bearer token, "), "]")
		f.record("review of "+name, nil, review.Status.Authenticated, review.Status.User.Username, review.Status.Audiences, strings.TrimSuffix(reason, "]"))
	}
	for _, path := range []string{"/.well-known/openid-configuration", "/openid/v1/jwks"} {
		document, err := f.admin.RESTClient().Get().AbsPath(path).DoRaw(ctx)
		f.record(path, err, string(document))
	}
	f.wants("review of second issuer: true system:serviceaccount:default:robot [https://first.example]", "review of unknown key: false",
		"token: https://first.example [\"https://first.example\",\"https://second.example\"] 10800", "https://keys.example/jwks")
}

// endpointScenario reads the endpoints of the Service kubernetes. Both servers listen on a loopback
// address, which the API does not permit there.
func endpointScenario(ctx context.Context, f *flagged) {
	var service *corev1.Service
	//lint:ignore SA1019 kube-apiserver writes them.
	var endpoints *corev1.Endpoints
	var slice *discoveryv1.EndpointSlice
	f.must(testbed.Poll(ctx, time.Minute, func() (err error) {
		if service, err = f.admin.CoreV1().Services("default").Get(ctx, "kubernetes", metav1.GetOptions{}); err != nil {
			return err
		}
		if endpoints, err = f.admin.CoreV1().Endpoints("default").Get(ctx, "kubernetes", metav1.GetOptions{}); err != nil {
			return err
		}
		slice, err = f.admin.DiscoveryV1().EndpointSlices("default").Get(ctx, "kubernetes", metav1.GetOptions{})
		return err
	}))
	port := service.Spec.Ports[0].TargetPort.IntVal
	if got := endpoints.Subsets[0].Ports[0].Port; got != port {
		f.Errorf("port %d of the endpoints, %d of the service", got, port)
	}
	if got := *slice.Ports[0].Port; got != port {
		f.Errorf("port %d of the slice, %d of the service", got, port)
	}
	endpoints.Subsets[0].Ports[0].Port, slice.Ports[0].Port = 0, nil
	f.record("endpoints", nil, endpoints.Labels, endpoints.Subsets)
	f.record("slice", nil, slice.Labels, slice.AddressType, slice.Endpoints[0].Addresses, *slice.Endpoints[0].Conditions.Ready, *slice.Ports[0].Name)
	f.wants("slice: map[kubernetes.io/service-name:kubernetes]")
}

// serviceScenario creates Services of one family and of both.
func serviceScenario(ctx context.Context, f *flagged) {
	one, prefer, require := ptr.To(corev1.IPFamilyPolicySingleStack), ptr.To(corev1.IPFamilyPolicyPreferDualStack), ptr.To(corev1.IPFamilyPolicyRequireDualStack)
	specs := map[string]corev1.ServiceSpec{
		"default":  {},
		"six":      {IPFamilies: []corev1.IPFamily{corev1.IPv6Protocol}},
		"one":      {IPFamilyPolicy: one, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}},
		"prefer":   {IPFamilyPolicy: prefer},
		"require":  {IPFamilyPolicy: require},
		"reversed": {IPFamilyPolicy: require, IPFamilies: []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}},
		"headless": {IPFamilyPolicy: prefer, ClusterIP: corev1.ClusterIPNone, ClusterIPs: []string{corev1.ClusterIPNone}},
		"chosen":   {IPFamilyPolicy: require, ClusterIP: "fd00:10::a", ClusterIPs: []string{"fd00:10::a", "10.0.0.200"}},
		"outside":  {ClusterIP: "fd00:11::a", ClusterIPs: []string{"fd00:11::a"}},
		"too many": {IPFamilyPolicy: one, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}},
	}
	inRange := func(ip string) any {
		addr, err := netip.ParseAddr(ip)
		switch {
		case err != nil:
			return ip
		case netip.MustParsePrefix("10.0.0.0/16").Contains(addr):
			return "IPv4"
		case netip.MustParsePrefix("fd00:10::/108").Contains(addr):
			return "IPv6"
		}
		return ip
	}
	for _, name := range slices.Sorted(maps.Keys(specs)) {
		spec := specs[name]
		spec.Ports = []corev1.ServicePort{{Port: 80}}
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: strings.ReplaceAll(name, " ", "-")}, Spec: spec}
		service, err := f.admin.CoreV1().Services("default").Create(ctx, service, metav1.CreateOptions{})
		found := []any{service.Spec.IPFamilyPolicy != nil && *service.Spec.IPFamilyPolicy == *one, service.Spec.IPFamilies}
		for _, ip := range service.Spec.ClusterIPs {
			found = append(found, inRange(ip))
		}
		f.record(name, err, found...)
	}
	cidrs, err := f.admin.NetworkingV1().ServiceCIDRs().Get(ctx, "kubernetes", metav1.GetOptions{})
	f.record("ranges", err, cidrs.Spec.CIDRs)
	own, err := f.admin.CoreV1().Services("default").Get(ctx, "kubernetes", metav1.GetOptions{})
	f.record("kubernetes", err, own.Spec.ClusterIPs)
	f.wants("reversed: false [IPv6 IPv4] IPv6 IPv4", "ranges: [10.0.0.0/16 fd00:10::/108]", "kubernetes: [10.0.0.1]")
}

// roundTripper is a function as an http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// proxyScenario names users in headers, with certificates of front proxies and with others.
func proxyScenario(ctx context.Context, f *flagged) {
	stranger, err := f.first.IssueClient(pki.FrontProxyUser) // of the CA of the first folder, not of its front proxies
	f.must(err)
	unnamed, err := (&pki.Material{CA: f.first.FrontProxyCA}).IssueClient("unnamed")
	f.must(err)
	client, err := f.env.AddUser(envtest.User{Name: pki.FrontProxyUser}, nil) // a client with a proxy's name
	f.must(err)
	whoami := func(certPEM, keyPEM []byte, headers map[string]string) (string, error) {
		config := rest.CopyConfig(f.env.Config)
		config.BearerToken, config.CertData, config.KeyData = "", certPEM, keyPEM
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(req *http.Request) (*http.Response, error) {
				for name, value := range headers {
					req.Header.Set(name, value)
				}
				return next.RoundTrip(req)
			})
		})
		clients, err := kubernetes.NewForConfig(config)
		f.must(err)
		review, err := clients.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		delete(review.Status.UserInfo.Extra, "authentication.kubernetes.io/credential-id") // the hash of a certificate
		return fmt.Sprint(review.Status.UserInfo.Username, review.Status.UserInfo.UID, review.Status.UserInfo.Groups, review.Status.UserInfo.Extra), err
	}
	proxy := f.first.FrontProxyClient
	jane := map[string]string{"X-Remote-User": "jane", "X-Remote-Group": "devs", "X-Remote-Extra-Scope": "all", "X-Remote-Uid": "7"}
	for _, request := range []struct {
		name      string
		cert, key []byte
		headers   map[string]string
	}{
		{"a proxy", proxy.CertPEM, proxy.KeyPEM, jane},
		{"a proxy, second header", proxy.CertPEM, proxy.KeyPEM, map[string]string{"X-Other-User": "jim"}},
		{"a proxy, header not in the list", proxy.CertPEM, proxy.KeyPEM, map[string]string{"X-Third-User": "jim"}},
		{"a proxy, no user", proxy.CertPEM, proxy.KeyPEM, map[string]string{"X-Remote-Group": "system:masters"}},
		{"a name not in the list", unnamed.CertPEM, unnamed.KeyPEM, jane},
		{"another CA", stranger.CertPEM, stranger.KeyPEM, jane},
		{"a client with the name of a proxy", client.Config().CertData, client.Config().KeyData, jane},
		{"no certificate", nil, nil, jane},
	} {
		found, err := whoami(request.cert, request.key, request.headers)
		f.record(request.name, err, found)
	}
	f.must(testbed.Poll(ctx, time.Minute, func() error { // a controller writes it
		published, err := f.admin.CoreV1().ConfigMaps("kube-system").Get(ctx, "extension-apiserver-authentication", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(published.Data)) {
			value := published.Data[name]
			if strings.HasPrefix(value, "-----BEGIN CERTIFICATE") {
				value = fmt.Sprint(strings.Count(value, "-----BEGIN"), " certificates, of the front proxies: ", value == string(f.first.FrontProxyCA.CertPEM))
			}
			f.record(name, nil, value)
		}
		return nil
	}))
	f.wants("a proxy: jane[devs system:authenticated] map[scope:[all]]", "a name not in the list: Unauthorized", "another CA: Unauthorized",
		"a client with the name of a proxy: front-proxy-client[", "no certificate: ",
		`requestheader-allowed-names: ["front-proxy-client","other-proxy"]`, "client-ca-file: 1 certificates, of the front proxies: false")
}

// aggregationScenario requests something of an aggregated API server.
func aggregationScenario(ctx context.Context, f *flagged) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/who") {
			fmt.Fprint(w, r.Header.Get("X-Remote-User"), " through the proxy of the flags: ", r.TLS.PeerCertificates[0].Equal(f.first.FrontProxyClient.Certificate))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"aggregated.example/v1","resources":[]}`)
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	server.StartTLS()
	f.Cleanup(server.Close)
	_, err := f.admin.CoreV1().Services("default").Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "aggregated"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}, metav1.CreateOptions{})
	f.must(err)
	registrations, err := aggregator.NewForConfig(f.env.Config)
	f.must(err)
	_, err = registrations.ApiregistrationV1().APIServices().Create(ctx, &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1.aggregated.example"},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: "aggregated.example", Version: "v1", GroupPriorityMinimum: 1000, VersionPriority: 15, InsecureSkipTLSVerify: true,
			Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: "aggregated", Port: ptr.To(int32(server.Listener.Addr().(*net.TCPAddr).Port))},
		},
	}, metav1.CreateOptions{})
	f.must(err)
	f.must(testbed.Poll(ctx, time.Minute, func() error {
		who, err := f.admin.RESTClient().Get().AbsPath("/apis/aggregated.example/v1/who").DoRaw(ctx)
		if err == nil {
			f.record("who", nil, string(who))
		}
		return err
	}))
	f.must(registrations.ApiregistrationV1().APIServices().Delete(ctx, "v1.aggregated.example", metav1.DeleteOptions{}))
	f.wants("through the proxy of the flags: true")
}

// kubeletScenario reads the logs of Pods from kubelets with a certificate of the CA in the flags and of another.
func kubeletScenario(ctx context.Context, f *flagged) {
	f.must(f.admin.CoreV1().Nodes().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	for name, of := range map[string]*pki.Material{"trusted": f.first, "untrusted": f.second} {
		kubelet := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, r.TLS.PeerCertificates[0].Equal(f.second.KubeletClient.Certificate))
		}))
		kubelet.TLS = &tls.Config{Certificates: []tls.Certificate{of.Serving.TLS()}, ClientAuth: tls.RequireAnyClientCert}
		kubelet.Config.ErrorLog = log.New(io.Discard, "", 0)
		kubelet.StartTLS()
		f.Cleanup(kubelet.Close)
		address := kubelet.Listener.Addr().(*net.TCPAddr)
		node, err := f.admin.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		f.must(err)
		node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}, {Type: corev1.NodeExternalIP, Address: "127.0.0.1"}}
		node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(address.Port)
		_, err = f.admin.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
		f.must(err)
		_, err = f.admin.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: name, Containers: []corev1.Container{{Name: "main", Image: "i"}}},
		}, metav1.CreateOptions{})
		f.must(err)
	}
	for _, name := range []string{"trusted", "untrusted"} {
		logs, err := f.admin.CoreV1().Pods("default").GetLogs(name, &corev1.PodLogOptions{}).DoRaw(ctx)
		if err != nil { // the message names the port
			logs, _, _ = bytes.Cut(logs, []byte("(possibly"))
			_, logs, _ = bytes.Cut(logs, []byte("tls: "))
		}
		f.record("logs of "+name, nil, err == nil, string(logs))
	}
	f.wants("logs of trusted: true true", "logs of untrusted: false failed to verify certificate: x509: certificate signed by unknown authority")
}

// versionScenario discovers all versions, and applies an object of one that is not served by default.
func versionScenario(ctx context.Context, f *flagged) {
	groups, lists, err := f.admin.Discovery().ServerGroupsAndResources()
	if !discovery.IsGroupDiscoveryFailedError(err) { // of the aggregated API server, whose end is not known yet
		f.must(err)
	}
	for _, group := range groups {
		if group.Name != "aggregated.example" {
			f.record(group.Name, nil, group.PreferredVersion.Version, group.Versions)
		}
	}
	slices.SortFunc(lists, func(a, b *metav1.APIResourceList) int { return strings.Compare(a.GroupVersion, b.GroupVersion) })
	for _, list := range lists {
		if list.GroupVersion == "aggregated.example/v1" {
			continue
		}
		for _, r := range list.APIResources {
			f.record(list.GroupVersion, nil, r.Name, r.Kind, r.Namespaced, r.Verbs, r.ShortNames, r.Categories)
		}
	}
	_, err = f.admin.BatchV1().Jobs("default").List(ctx, metav1.ListOptions{})
	f.record("jobs", err)
	object := []byte(`{"apiVersion":"resource.k8s.io/v1beta1","kind":"DeviceClass","metadata":{"name":"one"},"spec":{"selectors":[{"cel":{"expression":"true"}}]}}`)
	class, err := f.admin.ResourceV1beta1().DeviceClasses().Patch(ctx, "one", types.ApplyPatchType, object, metav1.PatchOptions{FieldManager: "test"})
	f.must(err)
	f.record("fields", nil, string(class.ManagedFields[0].FieldsV1.GetRawBytes()))
	_, err = f.admin.ResourceV1beta1().DeviceClasses().Patch(ctx, "one", types.ApplyPatchType, []byte(strings.Replace(string(object), "selectors", "unknown", 1)), metav1.PatchOptions{FieldManager: "test"})
	f.record("an unknown field", err)
	f.wants("resource.k8s.io/v1beta1: deviceclasses DeviceClass", "internal.apiserver.k8s.io/v1alpha1: storageversions StorageVersion", "jobs: the server could not find the requested resource", `"f:selectors":`)
}
