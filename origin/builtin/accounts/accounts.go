// Package accounts creates the service account "default" in every namespace. The admission plugin
// ServiceAccount requires it for every Pod, and usually kube-controller-manager creates it.
package accounts

import (
	"context"
	"fmt"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/serviceaccount"
)

// Controller is kube-controller-manager's own. Both may run at the same time.
type Controller struct {
	informers  informers.SharedInformerFactory
	controller *serviceaccount.ServiceAccountsController
}

// New returns a controller. config must be the configuration of a client that may do everything.
func New(config *rest.Config) (*Controller, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("service accounts: %w", err)
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	controller, err := serviceaccount.NewServiceAccountsController(klog.Background(),
		factory.Core().V1().ServiceAccounts(), factory.Core().V1().Namespaces(), client,
		serviceaccount.DefaultServiceAccountsControllerOptions())
	if err != nil {
		return nil, fmt.Errorf("service accounts: %w", err)
	}
	return &Controller{factory, controller}, nil
}

// Run runs the controller until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	c.informers.Start(ctx.Done())
	defer c.informers.Shutdown()
	c.controller.Run(ctx, 1)
}
