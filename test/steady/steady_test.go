package steady

import "testing"

// responds returns a function that returns the values in turn, and then the last one forever.
func responds(all ...int) func() int {
	return func() int {
		next := all[0]
		if len(all) > 1 {
			all = all[1:]
		}
		return next
	}
}

func TestCompare(t *testing.T) {
	growing := func() func() int {
		n := 0
		return func() int { n++; return n }
	}
	for _, c := range []struct {
		name           string
		oracle, target func() int
		same           bool
	}{
		{"equal", responds(1), responds(1), true},
		{"equal to the oracle's first answer", responds(1, 2), responds(1), true},
		{"equal to the oracle's second answer", responds(1, 2), responds(2), true},
		{"the oracle changes, then both are equal", responds(1, 2, 3, 3), responds(9, 3), true},
		{"wrong once while the oracle is steady", responds(1), responds(2, 1), false},
		{"the oracle never is steady", growing(), responds(0), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			want, got, same := Compare(c.oracle, c.target, func(a, b int) bool { return a == b })
			if same != c.same {
				t.Errorf("want %d, got %d: same is %t", want, got, same)
			}
		})
	}
}
