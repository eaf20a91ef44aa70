package checkpoint_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/cache/cachetest"
	"github.com/kubeweir/kubeweir/cache/source"
	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/internal/object"
)

// recoding is a source that sends different bytes for the same versions once the test requests it.
type recoding struct {
	*cachetest.Source
	recode *bool
}

func (r recoding) Watch(ctx context.Context, res *source.Resource, enc api.Encoding, opts source.WatchOptions, handle func(source.Event) error) error {
	return r.Source.Watch(ctx, res, enc, opts, func(ev source.Event) error {
		if *r.recode {
			ev.Object = bytes.Replace(ev.Object, []byte(`"restartPolicy":"Always"`), []byte(`"restartPolicy":"Never"`), 1)
		}
		return handle(ev)
	})
}

// TestReencodedObjectsAreSaved checks that objects that a new server encodes differently are saved
// although no event announces them.
func TestReencodedObjectsAreSaved(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		k := newCheckpointBench(t)
		k.source = cachetest.New(k.res)
		for _, key := range []string{"a/one", "a/two", "b/three"} {
			pod := cachetest.Pod(key, "")
			pod.Spec.RestartPolicy = "Always"
			k.source.Create(cachetest.Pods, pod)
		}
		recode := false
		k.wrap = func(s source.Source) source.Source { return recoding{s.(*cachetest.Source), &recode} }
		k.start()
		k.open()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		recode = true
		k.source.SetServer("2")
		k.source.Break(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		k.stop()
		k.source.Calls() // resets the list
		k.start()
		defer func() { k.stop() }()
		k.open().Snapshot().Ascend("", "", func(o *object.Object) bool {
			if !bytes.Contains(o.Raw, []byte("Never")) {
				t.Errorf("%s has the bytes of the old server: %s", o.Key, o.Raw)
			}
			return true
		})
		if calls := k.calls(); strings.Contains(calls, "initial=true") {
			t.Errorf("relisted: %s", calls)
		}
	})
}

// TestOnlyChangedObjectsAreWritten checks that of many objects only the changed ones are written.
func TestOnlyChangedObjectsAreWritten(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		k := newCheckpointBench(t)
		k.start()
		defer func() { k.stop() }()
		k.open()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		_, before := k.dir.Bytes()
		for range 10 { // some come and go between two saves
			k.source.Create(cachetest.Pods, cachetest.Pod("default/short", ""))
			k.source.Delete(cachetest.Pods, "default/short")
			k.source.Update(cachetest.Pods, cachetest.Pod("default/pod-03", "node"))
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if _, after := k.dir.Bytes(); after == before || after-before > 2000 {
			t.Errorf("%d bytes were written for one pod", after-before)
		}
	})
}

// TestCheckpointsAreHandedOver checks that a second manager can continue with what the first one
// hands over while it still serves.
func TestCheckpointsAreHandedOver(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		k := newCheckpointBench(t)
		k.start()
		before, folder := k.manager, k.dir
		defer before.Close()
		c := k.open()
		k.change()
		synctest.Wait()
		if !before.ReleaseCheckpoints() {
			t.Error("the checkpoints were not released")
		}
		if err := folder.Close(); err != nil {
			t.Fatal(err)
		}
		k.source.Calls() // resets the list
		k.start()
		defer func() { k.stop() }()
		k.same(k.open())
		if calls := k.calls(); strings.Contains(calls, "initial=true") {
			t.Errorf("relisted: %s", calls)
		}
		k.change()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		k.same(c)
		before.Drop(cachetest.Pods, errRedefinition) // would remove its checkpoint
		if _, err := before.Collection(t.Context(), k.res, api.JSON); err != nil {
			t.Error(err)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if saved := k.manager.Checkpoints(t.Context()); len(saved) != 1 {
			t.Errorf("checkpoints %v", saved)
		}
	})
}

// TestCheckpointOfOtherDefinitionIsNotDamaged checks that a checkpoint of another definition is not
// reported as damaged although its objects are decoded differently.
func TestCheckpointOfOtherDefinitionIsNotDamaged(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		k := newCheckpointBench(t)
		k.source = cachetest.New(k.res)
		pod := cachetest.Pod("default/managed", "")
		pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl", Operation: metav1.ManagedFieldsOperationUpdate}}
		k.source.Create(cachetest.Pods, pod)
		k.start()
		k.open()
		k.stop()
		k.res = k.res.Reinstate(time.Time{})
		k.res.Schema = k.res.Schema.WithoutManagedFields()
		k.start()
		defer func() { k.stop() }()
		k.open()
		if !strings.Contains(k.log.String(), "the resource was Pod") || strings.Contains(k.log.String(), ", want ") {
			t.Error(k.log.String())
		}
	})
}
