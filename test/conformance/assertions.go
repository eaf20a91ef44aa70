package conformance

import (
	"regexp"
	"strings"
)

// An Assertion is one thing that kubeweir does, and what holds it to that. docs/semantics.md is made of them.
type Assertion struct {
	ID   string // "group-number"; numbers are never given twice
	Text string
	// Cases are the names of cases, live watches and scenarios without their numbers and paths (see caseName); one
	// that ends in "*" stands for all that begin so.
	Cases []string
	// Tests are further tests, as "folder.TestName".
	Tests []string
}

// Assertions are all, by group.
func Assertions() []Assertion {
	var all []Assertion
	for _, group := range [][]Assertion{
		getAssertions(), listAssertions(), chunkAssertions(), selectorAssertions(), watchAssertions(), formAssertions(),
		errorAssertions(), discoveryAssertions(), identityAssertions(), writeAssertions(), gatewayAssertions(),
	} {
		all = append(all, group...)
	}
	return all
}

var caseNumber = regexp.MustCompile(`^([a-z]+/)\d{1,2} `)

// caseName is a case's name without its number, and without the path that it is asked of.
func caseName(name string) string {
	name, _, _ = strings.Cut(name, " /")
	name = strings.ReplaceAll(name, "?resourceVersion=0", "")
	return caseNumber.ReplaceAllString(name, "$1")
}

// cites reports whether a case holds the assertion.
func (a *Assertion) cites(name string) bool {
	name = caseName(name)
	for _, c := range a.Cases {
		if prefix, ok := strings.CutSuffix(c, "*"); ok && strings.HasPrefix(name, prefix) || c == name {
			return true
		}
	}
	return false
}

// Asserts are the ids of the assertions that the case of this name holds.
func Asserts(name string) []string {
	var ids []string
	for _, a := range Assertions() {
		if a.cites(name) {
			ids = append(ids, a.ID)
		}
	}
	return ids
}
