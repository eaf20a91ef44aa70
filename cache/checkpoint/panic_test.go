package checkpoint_test

import (
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/kubeweir/kubeweir/cache/checkpoint"
	"github.com/kubeweir/kubeweir/internal/bubble"
)

// bursting is a Storage whose readers panic at one of several points.
type bursting struct {
	checkpoint.Storage
	where string
}

// Open implements checkpoint.Storage.
func (b bursting) Open(name string) (checkpoint.Reader, error) {
	r, err := b.Storage.Open(name)
	if err == nil && b.where == "open" {
		panic("a bug")
	}
	return burstingReader{r, b.where}, err
}

type burstingReader struct {
	checkpoint.Reader
	where string
}

// Next implements checkpoint.Reader.
func (r burstingReader) Next() (checkpoint.Block, error) {
	block, err := r.Reader.Next()
	if r.where == "next" {
		panic("a bug")
	}
	return burstingBlock{block, r.where}, err
}

type burstingBlock struct {
	checkpoint.Block
	where string
}

// Each implements checkpoint.Block.
func (b burstingBlock) Each(set func([]byte) error, deleted func(string) error) error {
	if b.where == "each" {
		panic("a bug")
	}
	return b.Block.Each(set, deleted)
}

// TestPanicWhileLoadingRelists checks that a checkpoint that cannot be read without a panic is
// relisted and saved again.
func TestPanicWhileLoadingRelists(t *testing.T) {
	for _, where := range []string{"open", "next", "each"} {
		t.Run(where, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				k := newCheckpointBench(t)
				for range 4 * runtime.GOMAXPROCS(0) { // more blocks than goroutines that read them
					k.start()
					k.same(k.open())
					k.change()
					synctest.Wait()
					k.stop()
				}
				k.wrapStorage = func(storage checkpoint.Storage) checkpoint.Storage { return bursting{storage, where} }
				k.start()
				if n := len(k.manager.Checkpoints(t.Context())); n != 1 && where != "open" || n != 0 && where == "open" {
					t.Errorf("%d checkpoints", n)
				}
				k.source.Calls() // resets the list
				k.same(k.open())
				if calls := strings.Join(k.source.Calls(), ", "); !strings.HasPrefix(calls, "list pods") {
					t.Errorf("not relisted: %s", calls)
				}
				k.stop()
				if got := k.log.String(); strings.Count(got, "checkpoint dropped") != 1 || !strings.Contains(got, "a panic was contained") {
					t.Errorf("log: %s", got)
				}
				k.wrapStorage = nil
				k.start()
				if n := len(k.manager.Checkpoints(t.Context())); n != 1 {
					t.Errorf("%d new checkpoints", n)
				}
				k.source.Calls()
				k.same(k.open())
				if calls := strings.Join(k.source.Calls(), ", "); strings.Contains(calls, "list pods rv=\"\" match=\"\" limit=1, ") {
					t.Errorf("relisted: %s", calls)
				}
				k.stop()
			})
		})
	}
}
