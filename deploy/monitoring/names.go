package monitoring

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Use is a metric in an expression, with the matchers of its labels.
type Use struct {
	Metric string
	Labels map[string]Match
}

// Match is what a matcher requires of a label.
type Match struct{ Operator, Value string }

// Names returns the names in an expression of PromQL: its metrics, and the labels of its by, on and
// group clauses. It parses only as much of the language as is needed to distinguish these; promtool
// checks the rest.
func Names(expr string) (metrics []Use, labels []string) {
	tokens := token.FindAllString(expr, -1)
	last := -1 // index of the metric whose matchers may follow
	for i := 0; i < len(tokens); i++ {
		switch t := tokens[i]; {
		case t == "{" && last >= 0:
			for i++; tokens[i] != "}"; i++ {
				if name.MatchString(tokens[i]) {
					metrics[last].Labels[tokens[i]] = Match{tokens[i+1], strings.Trim(tokens[i+2], `"`)}
					i += 2
				}
			}
		case grouping[t] && i+1 < len(tokens) && tokens[i+1] == "(":
			for i += 2; tokens[i] != ")"; i++ {
				if tokens[i] != "," {
					labels = append(labels, tokens[i])
				}
			}
		case t == "[":
			for ; tokens[i] != "]"; i++ {
			}
		case !name.MatchString(t) || operator[t] || i+1 < len(tokens) && tokens[i+1] == "(" || aggregation[t]:
			last = -1
		default:
			metrics, last = append(metrics, Use{t, map[string]Match{}}), len(metrics)
			continue
		}
		last = -1
	}
	slices.Sort(labels)
	return metrics, slices.Compact(labels)
}

var (
	token       = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|[a-zA-Z_:][a-zA-Z0-9_:]*|\$[a-zA-Z_]+|[0-9.]+[a-z]*|=~|!~|!=|[<>=]=?|[{}()\[\],+*/%^-]`)
	name        = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*$`)
	grouping    = set("by", "without", "on", "ignoring", "group_left", "group_right")
	operator    = set("and", "or", "unless", "offset", "bool")
	aggregation = set("sum", "min", "max", "avg", "count", "topk", "bottomk")
)

func set(words ...string) map[string]bool {
	return maps.Collect(func(yield func(string, bool) bool) {
		for _, w := range words {
			if !yield(w, true) {
				return
			}
		}
	})
}
