package conformance

import (
	"regexp"
	"strings"
)

// An Assertion is a documented behavior of kubeweir, with the cases and tests that check it.
// docs/semantics.md is generated from the assertions.
type Assertion struct {
	ID   string // "group-number"; numbers are never reused
	Text string
	// Cases are names of cases, live watches and scenarios without numbers and paths (see caseName). A
	// name that ends in "*" matches every name with that prefix.
	Cases []string
	// Tests are additional tests, as "folder.TestName".
	Tests []string
}

// Assertions returns all assertions, by group.
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

// caseName returns the name of a case without its number and path.
func caseName(name string) string {
	name, _, _ = strings.Cut(name, " /")
	name = strings.ReplaceAll(name, "?resourceVersion=0", "")
	return caseNumber.ReplaceAllString(name, "$1")
}

// cites reports whether a case checks the assertion.
func (a *Assertion) cites(name string) bool {
	name = caseName(name)
	for _, c := range a.Cases {
		if prefix, ok := strings.CutSuffix(c, "*"); ok && strings.HasPrefix(name, prefix) || c == name {
			return true
		}
	}
	return false
}

// Asserts returns the IDs of the assertions that a case checks.
func Asserts(name string) []string {
	var ids []string
	for _, a := range Assertions() {
		if a.cites(name) {
			ids = append(ids, a.ID)
		}
	}
	return ids
}
