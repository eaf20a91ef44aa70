package reflector_test

import (
	"fmt"
	"testing"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/bubble"
	"github.com/kubeweir/kubeweir/internal/soak"
)

// TestRandomOperations performs random operations on a source. After each step it compares what the
// collection and its watchers show with the source's history, and the events of each watcher with
// the guarantees of a watch.
func TestRandomOperations(t *testing.T) {
	for i, seed := range soak.Seeds(t, 4, 200) {
		encodings := []api.Encoding{api.JSON, api.Protobuf}
		if !soak.Enabled() { // one after the other
			encodings = encodings[i%2:][:1]
		}
		for _, enc := range encodings {
			t.Run(fmt.Sprintf("%d-%s", seed, enc), func(t *testing.T) {
				bubble.Test(t, func(t *testing.T) { newWorld(t, seed, enc).run(150) })
			})
		}
	}
}
