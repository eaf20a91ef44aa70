package aggregator

import (
	"context"
	"log/slog"
	"testing"

	"k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"
	aggregatorinformers "k8s.io/kube-aggregator/pkg/client/informers/externalversions"
)

// TestNeededTooLate: an APIService that comes while the server stops ends nothing.
func TestNeededTooLate(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	clients := fake.NewSimpleClientset()
	factory := aggregatorinformers.NewSharedInformerFactory(clients, 0)
	services := factory.Apiregistration().V1().APIServices()
	services.Informer()
	factory.Start(ctx.Done())
	cancel()
	factory.Shutdown()

	s := &Server{APIServices: services, clients: clients}
	s.cfg.Informers = informers.NewSharedInformerFactory(kubefake.NewClientset(), 0)
	s.cfg.Logger = slog.New(slog.DiscardHandler)
	if _, err := s.availability(); err == nil {
		t.Error("a controller of informers that have stopped")
	}
	r := &remote{server: s}
	r.start(ctx)
	r.needed()
}
