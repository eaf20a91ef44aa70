package writertest

import (
	"testing"
)

func TestMemory(t *testing.T) {
	Run(t, Options{Limits: []int{memoryLimit}, Deliveries: 2000, Streams: 2}, func(*testing.T) Pipe { return Memory() })
}
