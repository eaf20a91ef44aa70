package bootstrap

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/controlplane/controller/clusterauthenticationtrust"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"

	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/origin/builtin/access"
	"github.com/kubeweir/kubeweir/origin/pki"
)

// newClient is a fake that does not keep managed fields, which takes it most of its
// time.
func newClient() *fake.Clientset {
	client := &fake.Clientset{}
	tracker := clienttesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder())
	client.AddReactor("*", "*", clienttesting.ObjectReaction(tracker))
	client.AddWatchReactor("*", func(a clienttesting.Action) (bool, watch.Interface, error) {
		var o metav1.ListOptions
		if w, ok := a.(clienttesting.WatchActionImpl); ok {
			o = w.ListOptions
		}
		w, err := tracker.Watch(a.GetResource(), a.GetNamespace(), o)
		return true, w, err
	})
	return client
}

// clientCA is the CA of config.
var clientCA = sync.OnceValue(func() dynamiccertificates.CAContentProvider {
	m, err := pki.InMemory(pki.Options{})
	if err != nil {
		panic(err)
	}
	ca, err := dynamiccertificates.NewStaticCAContent("test", m.CA.CertPEM)
	if err != nil {
		panic(err)
	}
	return ca
})

func config(client *fake.Clientset) Config {
	return Config{
		Client: client, Informers: informers.NewSharedInformerFactory(client, 0),
		AdvertiseAddress: netip.MustParseAddrPort("127.0.0.1:6443"), ServiceIP: netip.MustParseAddr("10.0.0.1"), NoEndpoints: true,
		Authentication: clusterauthenticationtrust.ClusterAuthenticationInfo{ClientCA: clientCA()},
		Logger:         slog.New(slog.DiscardHandler),
	}
}

// run bootstraps a store, in a bubble, and returns what ends it.
func run(t *testing.T, cfg Config) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	wait, err := Run(ctx, cfg)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	timeout(t, time.Second) // the controllers look for synced informers every 100 ms
	return func() {
		cancel()
		wait()
		cfg.Informers.Shutdown()
	}
}

// writes are the actions that changed something.
func writes(client *fake.Clientset) []string {
	var out []string
	for _, a := range client.Actions() {
		if !slices.Contains([]string{"get", "list", "watch"}, a.GetVerb()) {
			out = append(out, a.GetVerb()+" "+a.GetResource().Resource)
		}
	}
	return out
}

func TestEmptyStore(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		client := newClient()
		cfg := config(client)
		defer run(t, cfg)()
		for _, name := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
			if _, err := client.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{}); err != nil {
				t.Error(err)
			}
		}
		count := func(what string, got, want int, err error) {
			if err != nil || got != want {
				t.Errorf("%d %s, want %d (%v)", got, what, want, err)
			}
		}
		roles, err := client.RbacV1().ClusterRoles().List(t.Context(), metav1.ListOptions{})
		count("cluster roles", len(roles.Items), len(bootstrappolicy.ClusterRoles())+len(bootstrappolicy.ControllerRoles()), err)
		bindings, err := client.RbacV1().ClusterRoleBindings().List(t.Context(), metav1.ListOptions{})
		count("cluster role bindings", len(bindings.Items), len(bootstrappolicy.ClusterRoleBindings())+len(bootstrappolicy.ControllerRoleBindings()), err)
		system, err := client.RbacV1().Roles("kube-system").List(t.Context(), metav1.ListOptions{})
		count("roles in kube-system", len(system.Items), len(bootstrappolicy.NamespaceRoles()["kube-system"]), err)
		public, err := client.RbacV1().RoleBindings("kube-public").List(t.Context(), metav1.ListOptions{})
		count("role bindings in kube-public", len(public.Items), len(bootstrappolicy.NamespaceRoleBindings()["kube-public"]), err)
		classes, err := client.SchedulingV1().PriorityClasses().List(t.Context(), metav1.ListOptions{})
		count("priority classes", len(classes.Items), 2, err)
		maps, err := client.CoreV1().ConfigMaps("kube-system").List(t.Context(), metav1.ListOptions{})
		count("ConfigMaps", len(maps.Items), 2, err)
		service, err := client.CoreV1().Services("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
		if err != nil || service.Spec.ClusterIP != "10.0.0.1" || service.Spec.Ports[0].TargetPort.IntValue() != 6443 {
			t.Errorf("service %v, %v", service.Spec, err)
		}
		endpoints, err := client.CoreV1().Endpoints("").List(t.Context(), metav1.ListOptions{})
		count("endpoints", len(endpoints.Items), 0, err)
	})
}

// TestAggregatedRoles: admin, edit and view can do something, and each what the next one can.
func TestAggregatedRoles(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		defer run(t, config(client))()
		var fewer []rbacv1.PolicyRule
		for _, name := range []string{"view", "edit", "admin"} {
			role, err := client.RbacV1().ClusterRoles().Get(t.Context(), name, metav1.GetOptions{})
			if err != nil || role.AggregationRule == nil || len(role.Rules) <= len(fewer) {
				t.Fatalf("%s: %d rules, %v", name, len(role.Rules), err)
			}
			for _, rule := range fewer {
				if !slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return r.String() == rule.String() }) {
					t.Errorf("%s lacks %v", name, rule)
				}
			}
			fewer = role.Rules
		}

		own := &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: "widgets", Labels: map[string]string{"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
			Rules:      []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{"example.com"}, Resources: []string{"widgets"}}},
		}
		has := func(name string) bool {
			role, err := client.RbacV1().ClusterRoles().Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "widgets") })
		}
		settle := func() { timeout(t, time.Second) }
		if _, err := client.RbacV1().ClusterRoles().Create(t.Context(), own, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		settle()
		if !has("view") || !has("edit") || !has("admin") {
			t.Errorf("after a role was added: view %v, edit %v, admin %v", has("view"), has("edit"), has("admin"))
		}
		if err := client.RbacV1().ClusterRoles().Delete(t.Context(), "widgets", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		settle()
		if has("view") || has("edit") || has("admin") {
			t.Errorf("after it was deleted: view %v, edit %v, admin %v", has("view"), has("edit"), has("admin"))
		}
	})
}

// TestPopulatedStore: a second start changes nothing.
func TestPopulatedStore(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		run(t, config(client))()
		client.ClearActions()
		run(t, config(client))()
		if w := writes(client); len(w) > 0 {
			t.Errorf("wrote %q", w)
		}
		if n := len(client.Actions()); n > 60 {
			t.Errorf("%d calls", n)
		}
	})
}

// TestServersSharingAStore start at the same time.
func TestServersSharingAStore(t *testing.T) {
	client := newClient()
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			cfg := config(client)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			wait, err := Run(ctx, cfg)
			if err != nil {
				t.Error(err)
				return
			}
			// The library creates the service until the informer knows it.
			known := cfg.Informers.Core().V1().Services().Lister().Services("default")
			for _, err := known.Get("kubernetes"); err != nil; _, err = known.Get("kubernetes") {
				time.Sleep(time.Millisecond)
			}
			cancel()
			wait()
			cfg.Informers.Shutdown()
		})
	}
	wg.Wait()
}

// TestWhatPeopleChanged: what kube-apiserver puts right, and what it leaves.
func TestWhatPeopleChanged(t *testing.T) {
	secrets := rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"secrets"}}
	for _, tc := range []struct {
		name  string
		edit  func(*testing.T, *fake.Clientset)
		check func(*testing.T, *fake.Clientset)
	}{
		{"role deleted", func(t *testing.T, c *fake.Clientset) {
			must(t, c.RbacV1().ClusterRoles().Delete(t.Context(), "system:discovery", metav1.DeleteOptions{}))
		}, func(t *testing.T, c *fake.Clientset) {
			clusterRole(t, c, "system:discovery")
		}},
		{"rule removed, rule added", func(t *testing.T, c *fake.Clientset) {
			role := clusterRole(t, c, "system:discovery")
			role.Rules = []rbacv1.PolicyRule{secrets}
			update(t, c, role)
		}, func(t *testing.T, c *fake.Clientset) {
			if rules := clusterRole(t, c, "system:discovery").Rules; len(rules) < 2 || rules[0].String() != secrets.String() {
				t.Errorf("rules %v", rules)
			}
		}},
		{"protected role", func(t *testing.T, c *fake.Clientset) {
			role := clusterRole(t, c, "system:discovery")
			role.Rules, role.Annotations = nil, map[string]string{rbacv1.AutoUpdateAnnotationKey: "false"}
			update(t, c, role)
		}, func(t *testing.T, c *fake.Clientset) {
			if rules := clusterRole(t, c, "system:discovery").Rules; len(rules) != 0 {
				t.Errorf("rules %v", rules)
			}
		}},
		{"binding of another role", func(t *testing.T, c *fake.Clientset) {
			binding, err := c.RbacV1().ClusterRoleBindings().Get(t.Context(), "system:discovery", metav1.GetOptions{})
			must(t, err)
			binding.RoleRef.Name = "cluster-admin"
			_, err = c.RbacV1().ClusterRoleBindings().Update(t.Context(), binding, metav1.UpdateOptions{})
			must(t, err)
		}, func(t *testing.T, c *fake.Clientset) {
			binding, err := c.RbacV1().ClusterRoleBindings().Get(t.Context(), "system:discovery", metav1.GetOptions{})
			must(t, err)
			if binding.RoleRef.Name != "system:discovery" {
				t.Errorf("binds %s", binding.RoleRef.Name)
			}
		}},
		{"no date of tracking", func(t *testing.T, c *fake.Clientset) {
			m, err := c.CoreV1().ConfigMaps("kube-system").Get(t.Context(), "kube-apiserver-legacy-service-account-token-tracking", metav1.GetOptions{})
			must(t, err)
			m.Data["since"] = "long ago"
			_, err = c.CoreV1().ConfigMaps("kube-system").Update(t.Context(), m, metav1.UpdateOptions{})
			must(t, err)
		}, func(t *testing.T, c *fake.Clientset) {
			m, err := c.CoreV1().ConfigMaps("kube-system").Get(t.Context(), "kube-apiserver-legacy-service-account-token-tracking", metav1.GetOptions{})
			must(t, err)
			if m.Data["since"] != "2000-01-01" { // the bubble's clock
				t.Errorf("since %s", m.Data["since"])
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				client := newClient()
				run(t, config(client))()
				tc.edit(t, client)
				run(t, config(client))()
				tc.check(t, client)
			})
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func clusterRole(t *testing.T, c *fake.Clientset, name string) *rbacv1.ClusterRole {
	t.Helper()
	role, err := c.RbacV1().ClusterRoles().Get(t.Context(), name, metav1.GetOptions{})
	must(t, err)
	return role
}

func update(t *testing.T, c *fake.Clientset, role *rbacv1.ClusterRole) {
	t.Helper()
	_, err := c.RbacV1().ClusterRoles().Update(t.Context(), role, metav1.UpdateOptions{})
	must(t, err)
}

func TestFailures(t *testing.T) {
	unavailable := apierrors.NewServiceUnavailable("not yet")
	invalid := apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Namespace").GroupKind(), "kube-public", nil)
	for _, tc := range []struct {
		name    string
		failing int32 // creations of kube-public that fail
		err     error
		want    string
	}{
		{"for a while", 5, unavailable, ""},
		{"for ever", 1 << 30, unavailable, "bootstrap: Namespace kube-public: not yet"},
		{"at once", 1 << 30, invalid, `bootstrap: Namespace kube-public: Namespace "kube-public" is invalid`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				client := newClient()
				var tried atomic.Int32
				client.PrependReactor("create", "namespaces", func(a clienttesting.Action) (bool, runtime.Object, error) {
					object := a.(clienttesting.CreateAction).GetObject().(*corev1.Namespace)
					if object.Name == "kube-public" && tried.Add(1) <= tc.failing {
						return true, nil, tc.err
					}
					return false, nil, nil
				})
				ctx, cancel := context.WithCancel(t.Context())
				cfg := config(client)
				wait, err := Run(ctx, cfg)
				if err == nil {
					timeout(t, time.Second) // until the informers know what the controllers create
				}
				cancel()
				defer cfg.Informers.Shutdown()
				if tc.want == "" {
					must(t, err)
					wait()
					return
				}
				if err == nil || !strings.HasPrefix(err.Error(), tc.want) {
					t.Errorf("%v, want %q", err, tc.want)
				}
				if !errors.Is(err, tc.err) {
					t.Error("the cause is lost")
				}
				if apierrors.IsInvalid(tc.err) && tried.Load() != 1 {
					t.Errorf("tried %d times", tried.Load())
				}
			})
		})
	}
}

// TestServiceComesLater: until its range of addresses is known no service can be
// made.
func TestServiceComesLater(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		client := newClient()
		var known atomic.Bool
		client.PrependReactor("create", "services", func(clienttesting.Action) (bool, runtime.Object, error) {
			return !known.Load(), nil, apierrors.NewServiceUnavailable("no range")
		})
		cfg := config(client)
		cfg.AdvertiseAddress, cfg.NoEndpoints = netip.MustParseAddrPort("192.0.2.7:8443"), false
		defer run(t, cfg)()
		get := func() error {
			_, err := client.CoreV1().Services("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
			return err
		}
		if !apierrors.IsNotFound(get()) {
			t.Error(get())
		}
		known.Store(true)
		timeout(t, serviceInterval)
		must(t, get())
		endpoints, err := client.CoreV1().Endpoints("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
		if err != nil || endpoints.Subsets[0].Addresses[0].IP != "192.0.2.7" || endpoints.Subsets[0].Ports[0].Port != 8443 {
			t.Errorf("endpoints %v, %v", endpoints, err)
		}
		slice, err := client.DiscoveryV1().EndpointSlices("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
		if err != nil || slice.Endpoints[0].Addresses[0] != "192.0.2.7" {
			t.Errorf("slice %v, %v", slice, err)
		}
		// Deleted objects are created again.
		must(t, client.CoreV1().Services("default").Delete(t.Context(), "kubernetes", metav1.DeleteOptions{}))
		must(t, client.CoreV1().Namespaces().Delete(t.Context(), "kube-public", metav1.DeleteOptions{}))
		timeout(t, time.Minute+serviceInterval)
		must(t, get())
		_, err = client.CoreV1().Namespaces().Get(t.Context(), "kube-public", metav1.GetOptions{})
		must(t, err)
	})
}

// TestEndpoints: each server adds its address and removes it when it ends. Without a lease, there is
// one.
func TestEndpoints(t *testing.T) {
	for _, tc := range []struct {
		name        string
		shared      bool
		both, alone []string
	}{
		{"own store", false, []string{"192.0.2.8"}, []string{"192.0.2.8"}},
		{"shared store", true, []string{"192.0.2.7", "192.0.2.8"}, []string{"192.0.2.8"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				client := newClient()
				var ends []func()
				for _, address := range []string{"192.0.2.7:8443", "192.0.2.8:8443"} {
					cfg := config(client)
					cfg.AdvertiseAddress, cfg.NoEndpoints, cfg.SharedStore = netip.MustParseAddrPort(address), false, tc.shared
					ends = append(ends, run(t, cfg))
				}
				wants := func(want ...string) {
					t.Helper()
					endpoints, err := client.CoreV1().Endpoints("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
					must(t, err)
					slice, err := client.DiscoveryV1().EndpointSlices("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
					must(t, err)
					var addresses, sliced []string
					for _, subset := range endpoints.Subsets {
						for _, address := range subset.Addresses {
							addresses = append(addresses, address.IP)
						}
					}
					for _, endpoint := range slice.Endpoints {
						sliced = append(sliced, endpoint.Addresses...)
					}
					if !slices.Equal(addresses, want) || !slices.Equal(sliced, want) {
						t.Errorf("endpoints %q, slice %q, want %q", addresses, sliced, want)
					}
				}
				wants(tc.both...)
				ends[0]()
				wants(tc.alone...)
				ends[1]()
				wants()
			})
		})
	}
}

// TestEndpointOfLoopbackListener is an address of the machine.
func TestEndpointOfLoopbackListener(t *testing.T) {
	b := &bootstrapper{config(newClient())}
	want, err := utilnet.ResolveBindAddress(nil)
	if err != nil {
		t.Skip("the machine has no address: ", err)
	}
	if ip := b.publicIP(); !ip.Equal(want) {
		t.Errorf("%v, want %v", ip, want)
	}
}

func TestExtensionAuthentication(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		mine, err := pki.InMemory(pki.Options{})
		must(t, err)
		others, err := pki.InMemory(pki.Options{})
		must(t, err)
		client := newClient()
		for _, m := range []*pki.Material{others, mine, mine} {
			cfg := config(client)
			a, err := access.New(t.Context(), access.Config{
				ClientCA: m.CA.CertPEM, RequestHeader: access.KubeadmRequestHeader(m.FrontProxyCA.CertPEM, pki.FrontProxyUser),
				Client: client, Informers: cfg.Informers,
			})
			must(t, err)
			cfg.Authentication = a.Published
			run(t, cfg)()
		}
		got, err := client.CoreV1().ConfigMaps("kube-system").Get(t.Context(), "extension-apiserver-authentication", metav1.GetOptions{})
		must(t, err)
		for key, want := range map[string]string{
			"client-ca-file":                     string(others.CA.CertPEM) + string(mine.CA.CertPEM),
			"requestheader-client-ca-file":       string(others.FrontProxyCA.CertPEM) + string(mine.FrontProxyCA.CertPEM),
			"requestheader-allowed-names":        `["front-proxy-client"]`,
			"requestheader-username-headers":     `["X-Remote-User"]`,
			"requestheader-uid-headers":          `["X-Remote-Uid"]`,
			"requestheader-group-headers":        `["X-Remote-Group"]`,
			"requestheader-extra-headers-prefix": `["X-Remote-Extra-"]`,
		} {
			if got.Data[key] != want {
				t.Errorf("%s: %s", key, got.Data[key])
			}
		}
	})
}
