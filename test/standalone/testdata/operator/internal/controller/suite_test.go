package controller

import (
	"context"
	"path/filepath"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	v1 "example.com/controller/api/v1"
)

var (
	ctx    context.Context
	cancel context.CancelFunc
	env    *envtest.Environment
	c      client.Client
)

func TestControllers(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(60 * 1e9)
	RunSpecs(t, "controllers")
}

var _ = BeforeSuite(func() {
	ctx, cancel = context.WithCancel(context.Background())
	Expect(v1.AddToScheme(scheme.Scheme)).To(Succeed())
	env = &envtest.Environment{
		CRDDirectoryPaths:     []string{filepath.Join("..", "..", "config", "crd", "bases")},
		ErrorIfCRDPathMissing: true,
	}
	cfg, err := env.Start()
	Expect(err).NotTo(HaveOccurred())
	c, err = client.New(cfg, client.Options{})
	Expect(err).NotTo(HaveOccurred())
	manager, err := ctrl.NewManager(cfg, ctrl.Options{Metrics: server.Options{BindAddress: "0"}})
	Expect(err).NotTo(HaveOccurred())
	Expect((&SiteReconciler{manager.GetClient()}).SetupWithManager(manager)).To(Succeed())
	go func() {
		defer GinkgoRecover()
		Expect(manager.Start(ctx)).To(Succeed())
	}()
})

var _ = AfterSuite(func() {
	cancel()
	Expect(env.Stop()).To(Succeed())
})

var _ = Describe("Site", func() {
	site := func(name, image string) *v1.Site {
		return &v1.Site{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: v1.SiteSpec{Image: image}}
	}

	It("runs a Deployment and reports its status", func() {
		blog := site("blog", "nginx:1.27")
		Expect(c.Create(ctx, blog)).To(Succeed())
		Expect(*blog.Spec.Replicas).To(Equal(int32(1)), "the default")
		deployment, key := &appsv1.Deployment{}, client.ObjectKeyFromObject(blog)
		Eventually(func() error { return c.Get(ctx, key, deployment) }).Should(Succeed())
		Expect(metav1.IsControlledBy(deployment, blog)).To(BeTrue())

		deployment.Status.Replicas, deployment.Status.ReadyReplicas = 1, 1
		Expect(c.Status().Update(ctx, deployment)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(c.Get(ctx, key, blog)).To(Succeed())
			g.Expect(blog.Status.ReadyReplicas).To(Equal(int32(1)))
		}).Should(Succeed())

		blog.Spec.Image = "nginx:1.28"
		Expect(c.Update(ctx, blog)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(c.Get(ctx, key, deployment)).To(Succeed())
			g.Expect(deployment.Spec.Template.Spec.Containers[0].Image).To(Equal("nginx:1.28"))
		}).Should(Succeed())
	})

	It("is validated", func() {
		Expect(apierrors.IsInvalid(c.Create(ctx, site("untagged", "nginx")))).To(BeTrue())
	})
})
