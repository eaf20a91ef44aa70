package admit

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/util/webhook"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
)

// chain is an admission chain over a fake client that holds objects.
func chain(t *testing.T, change func(*Config), objects ...runtime.Object) (admission.Interface, *fake.Clientset) {
	t.Helper()
	client := fake.NewClientset(objects...)
	drained := make(chan struct{})
	cfg := Config{
		Loopback: &rest.Config{}, Client: client, Dynamic: dynamicfake.NewSimpleDynamicClient(legacyscheme.Scheme),
		Informers:       informers.NewSharedInformerFactory(client, 0),
		Authorizer:      authorizerfactory.NewAlwaysAllowAuthorizer(),
		ServiceResolver: webhook.NewDefaultServiceResolver(),
		ProxyTransport:  http.DefaultTransport.(*http.Transport),
		Drained:         drained,
	}
	if change != nil {
		change(&cfg)
	}
	c, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Informers.Start(drained)
	t.Cleanup(func() { close(drained); cfg.Informers.Shutdown() })
	cfg.Informers.WaitForCacheSync(drained)
	return c, client
}

// do admits an operation as the generic server does: mutation, then validation.
func do(c admission.Interface, a admission.Attributes) error {
	o := admission.NewObjectInterfacesFromScheme(legacyscheme.Scheme)
	if m, ok := c.(admission.MutationInterface); ok && m.Handles(a.GetOperation()) {
		if err := m.Admit(context.Background(), a, o); err != nil {
			return err
		}
	}
	if v, ok := c.(admission.ValidationInterface); ok && v.Handles(a.GetOperation()) {
		return v.Validate(context.Background(), a, o)
	}
	return nil
}

var jane = &user.DefaultInfo{Name: "jane"}

func creating(kind, resource string, object runtime.Object, namespace, name string) admission.Attributes {
	v1 := schema.GroupVersion{Version: "v1"}
	return admission.NewAttributesRecord(object, nil, v1.WithKind(kind), namespace, name, v1.WithResource(resource), "",
		admission.Create, &metav1.CreateOptions{}, false, jane)
}

func namespace(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive}}
}

func account(namespace string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}}
}

func pod(namespace string) *core.Pod {
	return &core.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p"},
		Spec:       core.PodSpec{Containers: []core.Container{{Name: "c", Image: "i"}}, SecurityContext: &core.PodSecurityContext{}},
	}
}

// TestOrder: the plugins that the documentation of v1.37 says are on by default.
func TestOrder(t *testing.T) {
	registered := append(slices.Clone(allPlugins), "AlwaysAdmit", "AlwaysDeny", "NodeRestriction")
	for _, tc := range []struct {
		name            string
		enable, disable []string
		want            []string
		err             string
	}{
		{"default", nil, nil, allPlugins, ""},
		{"one off", nil, []string{"Priority"}, slices.DeleteFunc(slices.Clone(allPlugins), func(s string) bool { return s == "Priority" }), ""},
		{"one on", []string{"NodeRestriction"}, nil, slices.Insert(slices.Clone(allPlugins), 3, "NodeRestriction"), ""},
		{"on and off", []string{"Priority"}, []string{"Priority"}, nil, "[Priority] are both enabled and disabled"},
		{"unknown", []string{"Priorities"}, nil, nil, `there is no plugin "Priorities" to enable`},
		{"unknown off", nil, []string{"x"}, nil, `there is no plugin "x" to disable`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := enabled(registered, tc.enable, tc.disable)
			if !slices.Equal(got, tc.want) {
				t.Errorf("%q", got)
			}
			if (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%v, want %q", err, tc.err)
			}
		})
	}
}

var allPlugins = []string{
	"NamespaceLifecycle", "LimitRanger", "ServiceAccount", "TaintNodesByCondition", "PodSecurity", "Priority",
	"DefaultTolerationSeconds", "DefaultStorageClass", "StorageObjectInUseProtection", "PodGroupProtection",
	"PersistentVolumeClaimResize", "RuntimeClass", "CertificateApproval", "CertificateSigning", "ClusterTrustBundleAttest",
	"CertificateSubjectRestriction", "DefaultIngressClass", "PodTopologyLabels",
	"NodeDeclaredFeatureValidator", "PodResizeValidator",
	"MutatingAdmissionPolicy", "MutatingAdmissionWebhook", "ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook", "ResourceQuota",
}

func TestPods(t *testing.T) {
	ending := namespace("ending", nil)
	ending.Status.Phase = corev1.NamespaceTerminating
	c, _ := chain(t, nil,
		namespace("ns", nil), account("ns"), namespace("bare", nil), ending,
		namespace("strict", map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}), account("strict"),
		namespace("small", nil), account("small"),
		&corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: "small", Name: "no-pods"},
			Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}},
			Status: corev1.ResourceQuotaStatus{
				Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")},
				Used: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")},
			},
		},
		namespace("limited", nil), account("limited"),
		&corev1.LimitRange{
			ObjectMeta: metav1.ObjectMeta{Namespace: "limited", Name: "l"},
			Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
				Type: corev1.LimitTypeContainer, Default: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")},
			}}},
		},
		&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 1000},
	)
	for _, tc := range []struct {
		name      string
		namespace string
		change    func(*core.Pod)
		want      string // of the error
		check     func(*testing.T, *core.Pod)
	}{
		{"defaults", "ns", nil, "", func(t *testing.T, p *core.Pod) {
			if p.Spec.ServiceAccountName != "default" || len(p.Spec.Volumes) != 1 || len(p.Spec.Containers[0].VolumeMounts) != 1 {
				t.Errorf("service account %q, %d volumes", p.Spec.ServiceAccountName, len(p.Spec.Volumes))
			}
			if len(p.Spec.Tolerations) != 2 || *p.Spec.Tolerations[0].TolerationSeconds != 300 {
				t.Errorf("tolerations %v", p.Spec.Tolerations)
			}
			if p.Spec.Priority == nil || *p.Spec.Priority != 0 {
				t.Errorf("priority %v", p.Spec.Priority)
			}
		}},
		{"priority", "ns", func(p *core.Pod) { p.Spec.PriorityClassName = "high" }, "", func(t *testing.T, p *core.Pod) {
			if *p.Spec.Priority != 1000 {
				t.Errorf("priority %d", *p.Spec.Priority)
			}
		}},
		{"unknown priority", "ns", func(p *core.Pod) { p.Spec.PriorityClassName = "low" }, "no PriorityClass with name low was found", nil},
		{"limits", "limited", nil, "", func(t *testing.T, p *core.Pod) {
			if cpu := p.Spec.Containers[0].Resources.Limits[core.ResourceCPU]; cpu.String() != "100m" {
				t.Errorf("cpu %s", cpu.String())
			}
		}},
		{"quota", "small", nil, "exceeded quota: no-pods, requested: pods=1, used: pods=0, limited: pods=0", nil},
		{"security", "strict", nil, `violates PodSecurity "restricted:latest"`, nil},
		{"no namespace", "missing", nil, `namespaces "missing" not found`, nil},
		{"ending namespace", "ending", nil, "unable to create new content in namespace ending because it is being terminated", nil},
		{"no service account", "bare", nil, `error looking up service account bare/default: serviceaccount "default" not found`, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := pod(tc.namespace)
			if tc.change != nil {
				tc.change(p)
			}
			err := do(c, creating("Pod", "pods", p, tc.namespace, p.Name))
			if (err != nil) != (tc.want != "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("%v, want %q", err, tc.want)
			}
			if tc.check != nil {
				tc.check(t, p)
			}
		})
	}
	v1 := schema.GroupVersion{Version: "v1"}
	deletion := admission.NewAttributesRecord(nil, nil, v1.WithKind("Namespace"), "default", "default", v1.WithResource("namespaces"), "",
		admission.Delete, &metav1.DeleteOptions{}, false, jane)
	if err := do(c, deletion); err == nil || !strings.Contains(err.Error(), "this namespace may not be deleted") {
		t.Errorf("deletion of default: %v", err)
	}
}

// TestDefaultStorageClass also shows that plugins of other groups are at work.
func TestDefaultStorageClass(t *testing.T) {
	c, _ := chain(t, nil, namespace("ns", nil), &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: "fast", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
		Provisioner: "none",
	})
	claim := &core.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}}
	if err := do(c, creating("PersistentVolumeClaim", "persistentvolumeclaims", claim, "ns", "c")); err != nil {
		t.Fatal(err)
	}
	if claim.Spec.StorageClassName == nil || *claim.Spec.StorageClassName != "fast" {
		t.Errorf("class %v", claim.Spec.StorageClassName)
	}
	if !slices.Contains(claim.Finalizers, "kubernetes.io/pvc-protection") {
		t.Errorf("finalizers %q", claim.Finalizers)
	}
}

// TestLiveLookups: nodes and pods that were made after the chain, of which no
// informer is told.
func TestLiveLookups(t *testing.T) {
	c, client := chain(t, nil, namespace("ns", nil))
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"topology.kubernetes.io/zone": "z1"}}}
	if _, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &core.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}, Target: core.ObjectReference{Kind: "Node", Name: "n1"}}
	v1 := schema.GroupVersion{Version: "v1"}
	err := do(c, admission.NewAttributesRecord(binding, nil, v1.WithKind("Binding"), "ns", "p", v1.WithResource("pods"), "binding",
		admission.Create, &metav1.CreateOptions{}, false, jane))
	if err != nil || binding.Labels["topology.kubernetes.io/zone"] != "z1" {
		t.Errorf("labels %v, %v", binding.Labels, err)
	}
	for _, list := range client.Actions() {
		if r := list.GetResource().Resource; list.GetVerb() == "watch" && (r == "pods" || r == "nodes") {
			t.Errorf("%s are watched", r)
		}
	}
}

// TestValidatingPolicy: a policy that comes later is enforced, and no more when it
// goes.
func TestValidatingPolicy(t *testing.T) {
	c, client := chain(t, nil, namespace("ns", nil))
	secret := func() error {
		return do(c, creating("Secret", "secrets", &core.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s"}}, "ns", "s"))
	}
	if err := secret(); err != nil {
		t.Fatal(err)
	}
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "no-secrets"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: ptr(admissionregistrationv1.Fail),
			MatchConstraints: &admissionregistrationv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{}, MatchPolicy: ptr(admissionregistrationv1.Equivalent),
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{"CREATE"},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"secrets"}},
				}}},
			},
			Validations: []admissionregistrationv1.Validation{{Expression: "false", Message: "no secrets here"}},
		},
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "no-secrets"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: "no-secrets", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}
	v1 := client.AdmissionregistrationV1()
	if _, err := v1.ValidatingAdmissionPolicies().Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := v1.ValidatingAdmissionPolicyBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// The library looks once a second whether there are new policies.
	eventually(t, "the policy is enforced", func() bool {
		err := secret()
		return err != nil && strings.Contains(err.Error(), "no secrets here")
	})
	if err := v1.ValidatingAdmissionPolicyBindings().Delete(t.Context(), "no-secrets", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the policy is not enforced any more", func() bool { return secret() == nil })
}

func ptr[T any](v T) *T { return &v }

// eventually waits for what the library's own timers bring about.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(15 * time.Second)
	for !done() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("never: " + what)
		}
	}
}

func TestBadConfig(t *testing.T) {
	client := fake.NewClientset()
	cfg := Config{Client: client, Informers: informers.NewSharedInformerFactory(client, 0), Enable: []string{"Nothing"}}
	if _, err := New(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), `no plugin "Nothing"`) {
		t.Error(err)
	}
	cfg.Enable, cfg.ConfigFile = nil, "/nonexistent/admission.yaml"
	if _, err := New(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "/nonexistent/admission.yaml") {
		t.Error(err)
	}
}
