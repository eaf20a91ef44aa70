package review

// SetDefault sets *v to a default if it is zero.
func SetDefault[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}
