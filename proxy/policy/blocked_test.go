package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestBlockRejectsArguments(t *testing.T) {
	blocked := NewBlocked(nil)
	for pattern, want := range map[string]string{
		"": "must be named", "*": "must be named", "***": "must be named", strings.Repeat("x", maxPattern+1): "at most 256 bytes",
		"a\nb": "printable", "a\xffb": "printable",
	} {
		if err := blocked.Block(pattern, time.Time{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", pattern, err)
		}
	}
	if err := blocked.Block("a", time.Now().Add(-time.Second)); err == nil || !strings.Contains(err.Error(), "over") {
		t.Error(err)
	}
	for i := range maxBlocked {
		if err := blocked.Block(fmt.Sprint("agent-", i), time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := blocked.Block("another", time.Time{}); err == nil || !strings.Contains(err.Error(), "64 user agents") {
		t.Error(err)
	}
	if err := blocked.Block("agent-1", time.Now().Add(time.Hour)); err != nil {
		t.Errorf("blocked already: %v", err)
	}
	if len(blocked.List()) != maxBlocked {
		t.Errorf("%d", len(blocked.List()))
	}
}
