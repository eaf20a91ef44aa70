package cache

// Settle returns when everything that was derived so far can be found.
func (r *Reader) Settle() { r.derived.cache.Wait() }
