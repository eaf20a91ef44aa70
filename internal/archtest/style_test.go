package archtest

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// Limits of files and packages without tests.
const (
	maxFileLines    = 600
	maxPackageLines = 3000
	maxPackageFiles = 25
)

// oversized lists the files and packages above the limits, with the reason. An entry that is no
// longer needed is an error.
var oversized = map[string]string{
	"config":                  "one description per setting, from which flags, files, checks and the reference follow",
	"origin/storage/embedded": "one engine: its write path, guard and history share their state",
	"proxy/edge/h2":           "one protocol, whose parts share the connection",
}

// clauseSubject matches a sentence that begins with a clause as its subject, or with "Of": "What is
// sent is counted." Questions are fine.
var clauseSubject = regexp.MustCompile(`(?:^|[.:;!?]\s+|\n\n)((?:What|Who|Whoever|Whatever|Of) [a-z][^.!?]*)([.!?]|$)`)

// privateWords are words that nobody searches for, with the field's word.
var privateWords = map[string]string{
	"answer": "response", "answered": "responded", "answering": "responding", "answers": "responses",
	"ask": "request", "asked": "requested", "asker": "client", "askers": "clients", "asking": "requesting",
	"asks": "requests", "calm": "coalesced", "complain": "rate-limited log", "complaint": "rate-limited log",
	"complaints": "errors", "hurried": "flushed early", "keeper": "checkpointer",
	"kept": "saved or retained", "lateness": "lag or staleness", "lookout": "probe",
	"newcomer": "unverified token", "newcomers": "unverified tokens", "nowait": "nonblocking",
	"patience": "timeout", "proof": "freshness check", "proofs": "freshness checks",
	"prove": "check freshness", "proven": "confirmed", "proves": "checks freshness", "pulse": "heartbeat",
	"referrer": "version lister", "refusal": "rejection", "refusals": "rejections", "refuse": "reject",
	"refused": "rejected", "refuses": "rejects", "said": "output", "says": "message",
	"seldom": "rate-limited", "spend": "charge", "spending": "budgets", "spends": "charges",
	"tableau": "result set", "tell": "send or report", "telling": "content", "tells": "reports",
	"told": "immediate", "torn": "partial", "widened": "extended",
}

// declared are the names that a Go file declares.
func declared(f *ast.File) []*ast.Ident {
	var out []*ast.Ident
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			out = append(out, n.Name)
		case *ast.TypeSpec:
			out = append(out, n.Name)
		case *ast.ValueSpec:
			out = append(out, n.Names...)
		case *ast.Field:
			out = append(out, n.Names...)
		case *ast.AssignStmt:
			for _, l := range n.Lhs {
				if id, ok := l.(*ast.Ident); ok && n.Tok == token.DEFINE {
					out = append(out, id)
				}
			}
		}
		return true
	})
	return out
}

// nameWords are the words of an identifier in lower case.
func nameWords(name string) []string {
	var out []string
	word := ""
	for i, r := range name {
		if r == '_' || i > 0 && unicode.IsUpper(r) && !unicode.IsUpper(rune(name[i-1])) {
			out = append(out, strings.ToLower(word))
			word = ""
		}
		if r != '_' {
			word += string(r)
		}
	}
	return append(out, strings.ToLower(word))
}

// styleOf returns what is against the style in a Go file.
func styleOf(file string, source []byte) []string {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return []string{err.Error()}
	}
	var out []string
	report := func(at token.Pos, format string, args ...any) {
		out = append(out, fmt.Sprintf("%s:%d: %s", file, fset.Position(at).Line, fmt.Sprintf(format, args...)))
	}
	for _, c := range f.Comments {
		for _, s := range clauseSubjects(c.Text()) {
			report(c.Pos(), "a sentence begins with a clause or \"Of\": %q", s)
		}
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			checkDoc(d.Doc, d.Name, report)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if t, ok := spec.(*ast.TypeSpec); ok && len(d.Specs) == 1 {
					checkDoc(d.Doc, t.Name, report)
				}
				if v, ok := spec.(*ast.ValueSpec); ok && len(d.Specs) == 1 && !d.Lparen.IsValid() {
					checkDoc(d.Doc, v.Names[0], report)
				}
			}
		}
	}
	for _, id := range declared(f) {
		for _, w := range nameWords(id.Name) {
			if better := privateWords[w]; better != "" {
				report(id.Pos(), "%s: use the field's word for %q (%s)", id.Name, w, better)
			}
		}
	}
	return out
}

func checkDoc(doc *ast.CommentGroup, name *ast.Ident, report func(token.Pos, string, ...any)) {
	text := doc.Text()
	if text == "" || name.Name == "_" {
		return
	}
	for _, article := range []string{"A ", "An ", "The "} {
		text = strings.TrimPrefix(text, article)
	}
	if rest, ok := strings.CutPrefix(text, name.Name); !ok || rest != "" && (unicode.IsLetter(rune(rest[0])) || unicode.IsDigit(rune(rest[0]))) {
		report(doc.Pos(), "the comment does not begin with %s", name.Name)
	}
}

// clauseSubjects returns the sentences of a text that begin with a clause.
func clauseSubjects(text string) []string {
	var out []string
	for _, m := range clauseSubject.FindAllStringSubmatch(text, -1) {
		if m[2] != "?" && !strings.HasPrefix(m[1], "Of returns ") {
			out = append(out, strings.TrimSpace(m[1]))
		}
	}
	return out
}

// TestStyle finds what can be recognized of unidiomatic names, comments and docs.
func TestStyle(t *testing.T) {
	root := filepath.Join("..", "..")
	lines, files := map[string]int{}, map[string]int{}
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		name := filepath.ToSlash(strings.TrimPrefix(file, root+string(filepath.Separator)))
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if d.Name() != ".." && strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules" {
				return fs.SkipDir
			}
			return nil
		case !strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, ".md"):
			return nil
		}
		source, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if strings.HasSuffix(name, ".md") {
			for i, line := range strings.Split(string(source), "\n") {
				for _, s := range clauseSubjects(strings.TrimLeft(line, "#-*| 0123456789.")) {
					t.Errorf("%s:%d: a sentence begins with a clause or \"Of\": %q", name, i+1, s)
				}
			}
			return nil
		}
		for _, s := range styleOf(name, source) {
			t.Error(s)
		}
		if strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "test/") {
			return nil
		}
		n := bytes.Count(source, []byte("\n"))
		lines[path.Dir(name)] += n
		files[path.Dir(name)]++
		if n > maxFileLines {
			lines[name] = n
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range slices.Sorted(maps.Keys(lines)) {
		big := lines[dir] > maxPackageLines || files[dir] > maxPackageFiles || strings.HasSuffix(dir, ".go")
		if reason := oversized[dir]; big != (reason != "") {
			t.Errorf("%s has %d lines in %d files; allowed because: %q", dir, lines[dir], files[dir], reason)
		}
	}
}
