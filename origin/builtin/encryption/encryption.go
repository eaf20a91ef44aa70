// Package encryption encrypts objects at rest by kube-apiserver's EncryptionConfiguration file, with
// the providers of its libraries, so that both programs can read what the other has written.
package encryption

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/serializer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig/controller"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig/metrics"
)

// The names of kube-apiserver's post-start hook and controller.
const (
	reloadHook       = "start-encryption-provider-config-automatic-reload"
	reloadController = "encryption-provider-config-automatic-reload-controller"
)

// Encryption encrypts the objects of one server.
type Encryption struct {
	file     string
	reload   bool
	serverID string
	loaded   *encryptionconfig.EncryptionConfiguration
	// closeLoaded ends the connections of loaded to KMS plugins. It is called when a reload has replaced
	// loaded, or by close.
	closeLoaded context.CancelFunc

	ctx     context.Context // ends with Close
	close   context.CancelFunc
	running sync.WaitGroup // the controller that reloads
}

// Load reads the file and connects to its KMS plugins, which may start later. With reload, a change of
// the file applies within a minute after Apply's hook has run. The caller closes the result.
func Load(file string, reload bool) (*Encryption, error) {
	// The ID is a hash of the hostname, and a label of kube-apiserver's metrics.
	e := &Encryption{file: file, reload: reload, serverID: genericapiserver.NewConfig(serializer.CodecFactory{}).APIServerID}
	e.ctx, e.close = context.WithCancel(context.Background())
	loadedContext, closeLoaded := context.WithCancel(e.ctx)
	e.closeLoaded = closeLoaded
	var err error
	if e.loaded, err = encryptionconfig.LoadEncryptionConfig(loadedContext, file, reload, e.serverID); err != nil {
		e.close()
		return nil, err
	}
	metrics.RecordEncryptionConfigLastConfigInfo(e.serverID, e.loaded.EncryptionFileContentHash)
	return e, nil
}

// Apply adds the transformers of objects, the health checks of KMS plugins and the hook that reloads the
// file, if that was requested, to c. It is called once (k8s.io/apiserver/pkg/server/options,
// maybeApplyResourceTransformers).
func (e *Encryption) Apply(c *genericapiserver.Config) error {
	checks := e.loaded.HealthChecks
	if e.reload {
		if len(checks) != 1 {
			return fmt.Errorf("encryption: a reloaded file must have one health check, and has %d", len(checks))
		}
		transformers := encryptionconfig.NewDynamicTransformers(e.loaded.Transformers, checks[0], e.closeLoaded, e.loaded.KMSCloseGracePeriod)
		c.ResourceTransformers = transformers
		c.HealthzChecks = append(c.HealthzChecks, transformers)
		c.ReadyzChecks = append(c.ReadyzChecks, transformers)
		reloader := controller.NewDynamicEncryptionConfiguration(reloadController, e.file, transformers, e.loaded.EncryptionFileContentHash, e.serverID)
		return c.AddPostStartHook(reloadHook, func(genericapiserver.PostStartHookContext) error {
			e.running.Go(func() { reloader.Run(e.ctx) })
			return nil
		})
	}
	c.ResourceTransformers = encryptionconfig.StaticTransformers(e.loaded.Transformers)
	c.HealthzChecks = append(c.HealthzChecks, checks...)
	c.ReadyzChecks = append(c.ReadyzChecks, checks...)
	return nil
}

// Close ends the connections to KMS plugins, and reloading. It is called after the last request, and
// after the hooks have run.
func (e *Encryption) Close() {
	e.close()
	e.running.Wait()
}
