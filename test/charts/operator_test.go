package charts

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionregistration "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

const taskNamespace = "operator"

// An operator is a typical controller-runtime manager: leader election, a controller that owns
// objects and has a finalizer, and webhooks that default, validate and convert.
type operator struct {
	client.Client // reads from the API server, not from a cache
	manager       ctrl.Manager
	server        webhook.Options
	ca            []byte

	mu struct {
		sync.Mutex
		warnings []string // from the API server
	}
}

// HandleWarningHeader implements rest.WarningHandler.
func (o *operator) HandleWarningHeader(_ int, _, text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.warnings = append(o.mu.warnings, text)
}

func (o *operator) warned(text string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Contains(o.mu.warnings, text)
}

// Reconcile maintains a ConfigMap with the words of a task.
func (o *operator) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	c := o.manager.GetClient()
	task := &Task{}
	if err := c.Get(ctx, req.NamespacedName, task); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	text := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: task.Namespace, Name: "task-" + task.Name}}
	if task.DeletionTimestamp != nil {
		if err := client.IgnoreNotFound(c.Delete(ctx, text)); err != nil {
			return ctrl.Result{}, err
		}
		if controllerutil.RemoveFinalizer(task, taskFinalizer) {
			return ctrl.Result{}, c.Update(ctx, task)
		}
		return ctrl.Result{}, nil
	}
	if controllerutil.AddFinalizer(task, taskFinalizer) {
		return ctrl.Result{}, c.Update(ctx, task)
	}
	if _, err := controllerutil.CreateOrUpdate(ctx, c, text, func() error {
		text.Data = map[string]string{"words": strings.Join(task.Spec.Words, "\n")}
		return controllerutil.SetControllerReference(task, text, o.manager.GetScheme())
	}); err != nil {
		return ctrl.Result{}, err
	}
	before := task.DeepCopyObject().(*Task)
	task.Status = TaskStatus{Written: len(task.Spec.Words), ObservedGeneration: task.Generation}
	return ctrl.Result{}, c.Status().Patch(ctx, task, client.MergeFrom(before))
}

// Default implements admission.Defaulter.
func (o *operator) Default(_ context.Context, task *Task) error {
	if task.Spec.Priority == 0 {
		task.Spec.Priority = 5
	}
	return nil
}

// ValidateCreate implements admission.Validator.
func (o *operator) ValidateCreate(_ context.Context, task *Task) (admission.Warnings, error) {
	if len(task.Spec.Words) == 0 {
		return nil, errors.New("a task without words")
	}
	if len(task.Spec.Words) == 1 {
		return admission.Warnings{"only one word"}, nil
	}
	return nil, nil
}

// ValidateUpdate implements admission.Validator.
func (o *operator) ValidateUpdate(_ context.Context, old, task *Task) (admission.Warnings, error) {
	if task.Spec.Priority < old.Spec.Priority {
		return nil, fmt.Errorf("priority falls from %d to %d", old.Spec.Priority, task.Spec.Priority)
	}
	return nil, nil
}

// ValidateDelete implements admission.Validator.
func (o *operator) ValidateDelete(_ context.Context, task *Task) (admission.Warnings, error) {
	if task.Labels["keep"] == "yes" {
		return nil, errors.New("it is to be kept")
	}
	return nil, nil
}

func newOperator(t *testing.T, config *rest.Config) *operator {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	o := &operator{}
	config = rest.CopyConfig(config)
	config.WarningHandler = o

	dir := t.TempDir()
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "tls.crt"), certificate, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "tls.key"), key, 0o600))
	_, rest := pem.Decode(certificate)
	o.ca = rest // the second certificate of the file is the authority's
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	o.server = webhook.Options{Host: "127.0.0.1", Port: listener.Addr().(*net.TCPAddr).Port, CertDir: dir}
	must(t, listener.Close())

	must(t, addTasks(scheme.Scheme))
	must(t, apiextensions.AddToScheme(scheme.Scheme))
	o.Client, err = client.New(config, client.Options{})
	must(t, err)
	o.manager, err = ctrl.NewManager(config, ctrl.Options{
		Scheme:                        scheme.Scheme,
		Logger:                        logr.Discard(),
		Metrics:                       metricsserver.Options{BindAddress: "0"},
		WebhookServer:                 webhook.NewServer(o.server),
		LeaderElection:                true,
		LeaderElectionID:              "tasks.charts.example.com",
		LeaderElectionNamespace:       taskNamespace,
		LeaderElectionReleaseOnCancel: true,
	})
	must(t, err)
	must(t, ctrl.NewWebhookManagedBy(o.manager, &Task{}).WithDefaulter(o).WithValidator(o).Complete())
	must(t, ctrl.NewControllerManagedBy(o.manager).For(&Task{}).Owns(&corev1.ConfigMap{}).
		WithOptions(controller.Options{SkipNameValidation: ptr.To(true)}).Complete(o))
	return o
}

// install creates what the operator's chart would.
func (o *operator) install(ctx context.Context, t *testing.T) {
	t.Helper()
	url := fmt.Sprintf("https://127.0.0.1:%d", o.server.Port)
	must(t, o.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: taskNamespace}}))
	definition := taskDefinition(url+"/convert", o.ca)
	must(t, o.Create(ctx, definition))
	o.eventually(ctx, t, "the definition is established", func() (bool, error) {
		err := o.Get(ctx, client.ObjectKeyFromObject(definition), definition)
		return slices.ContainsFunc(definition.Status.Conditions, func(c apiextensions.CustomResourceDefinitionCondition) bool {
			return c.Type == apiextensions.Established && c.Status == apiextensions.ConditionTrue
		}), err
	})
	rules := []admissionregistration.RuleWithOperations{{
		Operations: []admissionregistration.OperationType{"CREATE", "UPDATE", "DELETE"},
		Rule:       admissionregistration.Rule{APIGroups: []string{taskGroup}, APIVersions: []string{"v1"}, Resources: []string{"tasks"}},
	}}
	at := func(path string) admissionregistration.WebhookClientConfig {
		return admissionregistration.WebhookClientConfig{URL: ptr.To(url + path), CABundle: o.ca}
	}
	must(t, o.Create(ctx, &admissionregistration.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "tasks"},
		Webhooks: []admissionregistration.MutatingWebhook{{
			Name: "default.tasks.charts.example.com", ClientConfig: at("/mutate-tasks-charts-example-com-v1-task"), Rules: rules[:1],
			SideEffects: ptr.To(admissionregistration.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		}},
	}))
	must(t, o.Create(ctx, &admissionregistration.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "tasks"},
		Webhooks: []admissionregistration.ValidatingWebhook{{
			Name: "validate.tasks.charts.example.com", ClientConfig: at("/validate-tasks-charts-example-com-v1-task"), Rules: rules,
			SideEffects: ptr.To(admissionregistration.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		}},
	}))
}

// uninstall deletes the definition and waits until it and its objects are gone.
func (o *operator) uninstall(ctx context.Context, t *testing.T) {
	t.Helper()
	definition := taskDefinition("", nil)
	must(t, o.Delete(ctx, definition))
	o.eventually(ctx, t, "the definition is gone", func() (bool, error) {
		err := o.Get(ctx, client.ObjectKeyFromObject(definition), definition)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
}

func (o *operator) eventually(ctx context.Context, t *testing.T, what string, check func() (bool, error)) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := check()
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: not yet, last error: %v", what, err)
		}
	}
}

// TestOperator runs an operator at each of the servers.
func TestOperator(t *testing.T) {
	originConfig, err := origin.AdminConfig()
	must(t, err)
	for i, config := range []*rest.Config{kube.AdminConfig(), originConfig} {
		t.Run(serverNames[i], func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
			defer cancel()
			o := newOperator(t, config)
			o.install(ctx, t)
			running, stop := context.WithCancel(ctx)
			ended := make(chan error, 1)
			go func() { ended <- o.manager.Start(running) }()
			o.test(ctx, t)
			o.uninstall(ctx, t)
			stop()
			must(t, <-ended)
		})
	}
}

func (o *operator) test(ctx context.Context, t *testing.T) {
	key := client.ObjectKey{Namespace: taskNamespace, Name: "greet"}
	old := &OldTask{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, Spec: OldTaskSpec{Text: "hello there"}}
	// The webhook server may not be ready yet.
	o.eventually(ctx, t, "a task of the old version is created", func() (bool, error) {
		err := o.Create(ctx, old)
		return err == nil, err
	})
	if old.Spec.Text != "hello there" || old.Spec.Urgency != 5 {
		t.Errorf("created: %+v", old.Spec)
	}

	task := &Task{}
	written := func(words int) func() (bool, error) {
		return func() (bool, error) {
			err := o.Get(ctx, key, task)
			return task.Status == TaskStatus{Written: words, ObservedGeneration: task.Generation}, err
		}
	}
	o.eventually(ctx, t, "the status is written", written(2))
	if !slices.Equal(task.Spec.Words, []string{"hello", "there"}) || task.Spec.Priority != 5 || !slices.Contains(task.Finalizers, taskFinalizer) {
		t.Errorf("converted: %+v", task)
	}
	text := &corev1.ConfigMap{}
	must(t, o.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: "task-greet"}, text))
	if owner := metav1.GetControllerOf(text); owner == nil || owner.UID != task.UID || text.Data["words"] != "hello\nthere" {
		t.Errorf("ConfigMap %+v", text)
	}

	// Owned objects are watched, too.
	must(t, o.Delete(ctx, text))
	o.eventually(ctx, t, "the ConfigMap comes back", func() (bool, error) {
		err := o.Get(ctx, client.ObjectKeyFromObject(text), text)
		return err == nil, err
	})

	change := client.MergeFrom(task.DeepCopyObject().(*Task))
	task.Spec.Words = append(task.Spec.Words, "friend")
	must(t, o.Patch(ctx, task, change))
	o.eventually(ctx, t, "the change is written", written(3))
	must(t, o.Get(ctx, key, old))
	if old.Spec.Text != "hello there friend" {
		t.Errorf("converted: %+v", old.Spec)
	}
	o.testRejections(ctx, t, task)

	must(t, o.Delete(ctx, task))
	o.eventually(ctx, t, "the task is gone", func() (bool, error) {
		err := o.Get(ctx, key, task)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
	if err := o.Get(ctx, client.ObjectKeyFromObject(text), text); !apierrors.IsNotFound(err) {
		t.Errorf("the ConfigMap still exists: %v", err)
	}
}

func (o *operator) testRejections(ctx context.Context, t *testing.T, task *Task) {
	t.Helper()
	const rejected = `admission webhook "validate.tasks.charts.example.com" denied the request: `
	change := client.MergeFrom(task.DeepCopyObject().(*Task))
	task.Spec.Priority = 1
	if err := o.Patch(ctx, task, change); !apierrors.IsForbidden(err) || err.Error() != rejected+"priority falls from 5 to 1" {
		t.Errorf("update: %v", err)
	}
	empty := &Task{ObjectMeta: metav1.ObjectMeta{Namespace: taskNamespace, Name: "empty"}}
	if err := o.Create(ctx, empty); !apierrors.IsForbidden(err) || err.Error() != rejected+"a task without words" {
		t.Errorf("create: %v", err)
	}
	one := &Task{ObjectMeta: metav1.ObjectMeta{Namespace: taskNamespace, Name: "one", Labels: map[string]string{"keep": "yes"}}, Spec: TaskSpec{Words: []string{"hm"}}}
	if err := o.Create(ctx, one.DeepCopyObject().(*Task), client.DryRunAll); err != nil {
		t.Errorf("dry run: %v", err)
	}
	must(t, o.Create(ctx, one))
	if !o.warned("only one word") {
		t.Errorf("warnings %v", o.mu.warnings)
	}
	if err := o.Delete(ctx, one); !apierrors.IsForbidden(err) || err.Error() != rejected+"it is to be kept" {
		t.Errorf("delete: %v", err)
	}
	o.eventually(ctx, t, "the label is taken away", func() (bool, error) {
		if err := o.Get(ctx, client.ObjectKeyFromObject(one), one); err != nil {
			return false, err
		}
		one.Labels = nil
		err := o.Update(ctx, one)
		return err == nil, err
	})
	must(t, o.Delete(ctx, one))
}
