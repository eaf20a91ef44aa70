package admit

import (
	"context"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	mutatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	validatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// skipper wraps the plugins of admission policies and webhooks: as long as there is no
// binding of a policy, or no configuration of webhooks, they are not asked. Without one
// they would do nothing; those of policies only after the policies were compiled for the
// first time, which they notice once in 100 ms, twice over: too long for a server that is
// to be ready in less. Those of webhooks start a timer for each object to find that out.
func skipper(f informers.SharedInformerFactory) admission.Decorator {
	v1 := f.Admissionregistration().V1()
	return admission.DecoratorFunc(func(plugin admission.Interface, name string) admission.Interface {
		switch name {
		case mutating.PluginName:
			if p, ok := plugin.(admission.MutationInterface); ok {
				return mutator{p, noneIn(v1.MutatingAdmissionPolicyBindings().Informer())}
			}
		case mutatingwebhook.PluginName:
			if p, ok := plugin.(admission.MutationInterface); ok {
				return mutator{p, noneIn(v1.MutatingWebhookConfigurations().Informer())}
			}
		case validatingwebhook.PluginName:
			if p, ok := plugin.(admission.ValidationInterface); ok {
				return validator{p, noneIn(v1.ValidatingWebhookConfigurations().Informer())}
			}
		case validating.PluginName:
			if p, ok := plugin.(admission.ValidationInterface); ok {
				return validator{p, noneIn(v1.ValidatingAdmissionPolicyBindings().Informer())}
			}
		}
		return plugin
	})
}

// noneIn returns a function that reports whether the informer has synced and has no objects.
func noneIn(informer cache.SharedIndexInformer) func() bool {
	store := informer.GetStore()
	return func() bool { return informer.HasSynced() && len(store.ListKeys()) == 0 }
}

type mutator struct {
	admission.MutationInterface
	none func() bool
}

func (m mutator) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if m.none() {
		return nil
	}
	return m.MutationInterface.Admit(ctx, a, o)
}

type validator struct {
	admission.ValidationInterface
	none func() bool
}

func (v validator) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if v.none() {
		return nil
	}
	return v.ValidationInterface.Validate(ctx, a, o)
}
