package shard

import (
	"strings"
	"sync"
)

// Parser parses selectors and caches the results: clients that read shards send the same few again
// and again, and parsing one costs half of what listing a few objects does. The zero value is ready
// to use. It is safe for concurrent use.
type Parser struct {
	mu    sync.RWMutex
	known map[string]*Selector
}

// maxKnown and maxKnownText limit what a Parser caches: the number of selectors and the length of
// each.
const (
	maxKnown     = 256
	maxKnownText = 1 << 10
)

// Parse is the function Parse with a cache.
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
		p.known = make(map[string]*Selector) // selectors in use will come again
	}
	p.known[strings.Clone(value)] = s // value is part of a request's query
	return s, nil
}
