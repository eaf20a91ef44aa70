package soak

import "testing"

func TestCases(t *testing.T) {
	t.Setenv(enabledVariable, "")
	if Cases(1, 2) != 1 || Seed(t) != Seed(t) {
		t.Error("a long form without being asked")
	}
	t.Setenv(enabledVariable, "1")
	if Cases(1, 2) != 2 || Seed(t) == Seed(t) {
		t.Error("no long form")
	}
	t.Setenv(seedVariable, "7")
	if Seed(t) != 7 {
		t.Error("the seed is not that of the environment")
	}
}
