package e2e

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1 "k8s.io/api/core/v1"
)

// output collects the output of a process.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// age matches the last column of a table.
var age = regexp.MustCompile(`(?m) +\S+$`)

// compareWatches runs kubectl watches directly and through the gateway while a ConfigMap changes.
func (k *kubectl) compareWatches(ctx context.Context, t *testing.T) {
	typed, _ := directClients(t)
	maps := typed.CoreV1().ConfigMaps(readNamespace)
	for n, args := range commands(`
get configmaps -n $NS -w
get configmaps -A -w -l watched=yes --output-watch-events
get configmaps -n $NS -l watched=yes -w -o name
get configmaps -n $NS -w -l watched=yes -o custom-columns=N:.metadata.name,D:.data
`) {
		name := fmt.Sprintf("watched-%d", n)
		_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"watched": "yes"}}}, metav1.CreateOptions{})
		must(t, err)
		out, stop := k.startBoth(ctx, t, args)
		// Wait for the list; the watch starts from its version.
		awaitLines(ctx, t, out, name, 1)
		for i := range 3 {
			_, err := maps.Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"data":{"n%d":"x"}}`, i), metav1.PatchOptions{})
			must(t, err)
		}
		must(t, maps.Delete(ctx, name, metav1.DeleteOptions{}))
		awaitLines(ctx, t, out, name, 5)
		stop()
		a, b := age.ReplaceAllString(out[0].String(), ""), age.ReplaceAllString(out[1].String(), "")
		if a != b {
			t.Errorf("kubectl %s:\n%s", strings.Join(args, " "), firstDifference(a, b))
		}
	}
	k.watchOnly(ctx, t)
}

// watchOnly tests kubectl get --watch-only. The start of its watch is not visible, so the object is
// updated until kubectl prints it.
func (k *kubectl) watchOnly(ctx context.Context, t *testing.T) {
	typed, _ := directClients(t)
	maps := typed.CoreV1().ConfigMaps(readNamespace)
	const name = "watched-only"
	_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	must(t, err)
	out, stop := k.startBoth(ctx, t, strings.Fields("get configmaps -n $NS --watch-only --output-watch-events"))
	n := 0
	eventually(ctx, t, waitTimeout, func() error {
		n++
		if _, err := maps.Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"data":{"n":"%d"}}`, n), metav1.PatchOptions{}); err != nil {
			return err
		}
		for i, o := range out {
			if !strings.Contains(o.String(), name) {
				return fmt.Errorf("kubectl --watch-only (%d) printed %q", i, o)
			}
		}
		return nil
	})
	must(t, maps.Delete(ctx, name, metav1.DeleteOptions{}))
	eventually(ctx, t, waitTimeout, func() error {
		for i, o := range out {
			if !strings.Contains(o.String(), "DELETED") {
				return fmt.Errorf("kubectl --watch-only (%d) did not print the deletion: %q", i, o)
			}
		}
		return nil
	})
	stop()
	for i, o := range out {
		if strings.Contains(o.String(), "ADDED") {
			t.Errorf("kubectl --watch-only (%d) printed the initial state: %q", i, o)
		}
	}
}

// startBoth starts a command that does not end by itself. stop kills it.
func (k *kubectl) startBoth(ctx context.Context, t *testing.T, args []string) (out [2]*output, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	for i := range out {
		out[i] = &output{}
		line := strings.Split(strings.ReplaceAll(strings.Join(args, "\x00"), "$NS", readNamespace), "\x00")
		cmd := k.command(ctx, k.configs[i], line...)
		cmd.Stdout, cmd.Stderr = out[i], out[i]
		must(t, cmd.Start())
		running.Go(func() { _ = cmd.Wait() }) // it is killed
	}
	stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	return out, stop
}

// awaitLines waits until each output has n complete lines with a name. kubectl writes a row cell by
// cell, and the newline last.
func awaitLines(ctx context.Context, t *testing.T, out [2]*output, name string, n int) {
	t.Helper()
	eventually(ctx, t, waitTimeout, func() error {
		for i, o := range out {
			text := o.String()
			if got := strings.Count(text, name); got < n || !strings.HasSuffix(text, "\n") {
				return fmt.Errorf("got %d of %d complete lines with %s (%d): %q", got, n, name, i, text)
			}
		}
		return nil
	})
}
