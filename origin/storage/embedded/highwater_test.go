package embedded

import (
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// TestHighWater: whenever the machine dies, what is read is what was noted last, or was just being noted.
func TestHighWater(t *testing.T) {
	mem := vfs.NewCrashableMem()
	if err := mem.MkdirAll("data", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syncDir(mem, "/"); err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(7, 7))
	noted, noting := uint64(0), uint64(0)
	crashes := 0
	fs := hook(mem, func(op errorfs.Op) error {
		clone := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: random.IntN(101), RNG: random})
		var h highWater
		got, err := h.open(clone, "data")
		if err != nil || got < noted || got > noting {
			t.Errorf("before %v: %d, %v, want %d to %d", op, got, err, noted, noting)
		}
		_ = h.file.Close()
		crashes++
		return nil
	})
	for range 5 {
		var h highWater
		got, err := h.open(fs, "data")
		if err != nil || got != noted {
			t.Fatalf("opened at %d, %v, want %d", got, err, noted)
		}
		for range 20 {
			noting = noted + random.Uint64N(1<<random.IntN(50))
			if err := h.note(noting); err != nil {
				t.Fatal(err)
			}
			noted = noting
		}
		_ = h.file.Close()
	}
	if crashes < 150 {
		t.Errorf("%d crashes", crashes)
	}
}

// TestParseSlot: anything else than a slot is none.
func TestParseSlot(t *testing.T) {
	good := appendSlot(nil, 1<<40+7)
	for i := range len(good) * 8 {
		bad := append([]byte{}, good...)
		bad[i/8] ^= 1 << (i % 8)
		if got := parseSlot(bad); got != 0 {
			t.Errorf("bit %d: %d", i, got)
		}
	}
	for _, b := range [][]byte{nil, good[:11], make([]byte, slotSize)} {
		if got := parseSlot(b); got != 0 {
			t.Errorf("%x: %d", b, got)
		}
	}
	if got := parseSlot(good); got != 1<<40+7 {
		t.Errorf("%x: %d", good, got)
	}
}
