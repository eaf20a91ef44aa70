package shard

import (
	"strings"
	"sync"
)

// Parser parses selectors and remembers them: readers of shards ask for the same few
// again and again, and one costs half of what a list of a few objects does. The zero value
// is ready. It is safe for concurrent use.
type Parser struct {
	mu    sync.RWMutex
	known map[string]*Selector
}

// What a Parser remembers at most: so many selectors, none of them longer.
const (
	maxKnown     = 256
	maxKnownText = 1 << 10
)

// Parse is the function of this name.
func (p *Parser) Parse(value string) (*Selector, error) {
	p.mu.RLock()
	s := p.known[value]
	p.mu.RUnlock()
	if s != nil {
		return s, nil
	}
	s, err := Parse(value)
	if err != nil || len(value) > maxKnownText {
		return s, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil || len(p.known) >= maxKnown {
		p.known = make(map[string]*Selector) // those in use come again
	}
	p.known[strings.Clone(value)] = s // of a request's query
	return s, nil
}
