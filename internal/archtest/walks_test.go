package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestWalksNameFunctions makes sure that the section "Request paths" of ARCHITECTURE.md only names
// existing functions between backquotes.
func TestWalksNameFunctions(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, walks, _ := strings.Cut(string(text), "\n## Request paths\n")
	walks, _, _ = strings.Cut(walks, "\n## ")
	names := regexp.MustCompile("`([A-Za-z0-9]+\\.)?([A-Za-z0-9]+)`").FindAllStringSubmatch(walks, -1)
	if len(names) < 20 {
		t.Fatalf("%d functions", len(names))
	}
	known := functions(t, root)
	for _, name := range names {
		if !known[name[1]+name[2]] {
			t.Errorf("no function %s", strings.Trim(name[0], "`"))
		}
	}
}

// functions returns those of the whole module, with and without the name of their receiver's type.
func functions(t *testing.T, root string) map[string]bool {
	t.Helper()
	known := map[string]bool{}
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && (name == "test" || name == "deploy" || name == "testdata" || name != ".." && strings.HasPrefix(name, ".")):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range parsed.Decls {
			declare(known, decl)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return known
}

// declare adds the functions that decl declares, including methods of interfaces.
func declare(known map[string]bool, decl ast.Decl) {
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		known[decl.Name.Name] = true
		if decl.Recv != nil {
			known[receiver(decl.Recv.List[0].Type)+"."+decl.Name.Name] = true
		}
	case *ast.GenDecl:
		for _, spec := range decl.Specs {
			named, ok := spec.(*ast.TypeSpec)
			if !ok {
				continue
			}
			if methods, ok := named.Type.(*ast.InterfaceType); ok {
				for _, m := range methods.Methods.List {
					for _, name := range m.Names {
						known[name.Name], known[named.Name.Name+"."+name.Name] = true, true
					}
				}
			}
		}
	}
}

// receiver returns the name of a method's type.
func receiver(e ast.Expr) string {
	for {
		switch of := e.(type) {
		case *ast.StarExpr:
			e = of.X
		case *ast.IndexExpr:
			e = of.X
		case *ast.Ident:
			return of.Name
		default:
			return ""
		}
	}
}
