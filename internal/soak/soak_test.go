package soak

import (
	"slices"
	"testing"
)

func TestCases(t *testing.T) {
	t.Setenv(enabledVariable, "")
	if n, seed := Cases(1, 2), Seed(t); n != 1 || seed != 1 {
		t.Errorf("the short form has %d cases and seed %d", n, seed)
	}
	t.Setenv(enabledVariable, "1")
	first := Seed(t)
	if n, second := Cases(1, 2), Seed(t); n != 2 || first == second {
		t.Errorf("a soak has %d cases and seeds %d and %d", n, first, second)
	}
	t.Setenv(seedVariable, "7")
	if Seed(t) != 7 {
		t.Error("the seed is not that of the environment")
	}
}

func TestSeeds(t *testing.T) {
	t.Setenv(enabledVariable, "")
	t.Setenv(seedVariable, "7")
	if got := Seeds(t, 2, 3); !slices.Equal(got, []uint64{7, 8}) {
		t.Errorf("short form: %v", got)
	}
	t.Setenv(enabledVariable, "1")
	if got := Seeds(t, 2, 3); !slices.Equal(got, []uint64{7, 8, 9}) {
		t.Errorf("long form: %v", got)
	}
}
