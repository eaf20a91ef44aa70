// Package kubeconfig loads kubeconfigs.
package kubeconfig

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Load loads a context of a file, the current context for "". Unlike client-go's deferred loading
// it never falls back to the in-cluster configuration, for instance if the file is empty.
func Load(file, context string) (*rest.Config, error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: file}
	loaded, err := rules.Load()
	if err != nil {
		text, _, _ := strings.Cut(err.Error(), "; json parse error") // the rest names Go types
		return nil, errors.New(text)
	}
	cfg, err := clientcmd.NewNonInteractiveClientConfig(*loaded, context, &clientcmd.ConfigOverrides{}, rules).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, explain(err, loaded, context))
	}
	return cfg, nil
}

// explain words err for mistakes for which client-go only says that there is no configuration.
func explain(err error, loaded *clientcmdapi.Config, name string) error {
	if name = cmp.Or(name, loaded.CurrentContext); name == "" {
		return errors.New("no current-context; set it, or name a context")
	}
	context := loaded.Contexts[name]
	if context == nil {
		return fmt.Errorf("no context %q", name)
	}
	if loaded.Clusters[context.Cluster] == nil {
		return fmt.Errorf("context %q refers to cluster %q, which does not exist", name, context.Cluster)
	}
	return err
}
