package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestExportedIsUsable makes sure that other modules can name what the public package exports: no
// exported function, method, field or variable has a type of another package of this module.
func TestExportedIsUsable(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "origin", "origintest", "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		broken, err := unusable(file, nil)
		if err != nil {
			t.Error(err)
		}
		for _, b := range broken {
			t.Errorf("%s: %s", file, b)
		}
	}
}

// TestUnusableBites makes sure that the rule can be violated, and accepts what it should.
func TestUnusableBites(t *testing.T) {
	for source, want := range map[string]int{
		"func F(a int, e api.Encoding) {}":                      1,
		"func f(e api.Encoding) {}":                             0,
		"func F() map[string][]*api.Encoding { return nil }":    1,
		"type T struct { E api.Encoding; e api.Encoding }":      1,
		"type T struct { api.Encoding }":                        1,
		"type t struct { E api.Encoding }":                      0,
		"type T interface { M(api.Encoding); m(api.Encoding) }": 1,
		"type E = api.Encoding":                                 0,
		"type E api.Encoding":                                   1,
		"var V api.Encoding":                                    1,
		"type T struct{}\nfunc (*T) M(api.Encoding) {}":         1,
		"type t struct{}\nfunc (*t) M(api.Encoding) {}":         0,
	} {
		source = "package p\nimport \"" + module + "internal/api\"\n" + source
		got, err := unusable("p.go", source)
		if err != nil || len(got) != want {
			t.Errorf("%s\n%v %v, want %d", source, got, err, want)
		}
	}
}

// unusable returns the exported declarations of a file that name a type of this module.
func unusable(file string, source any) ([]string, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	s := surface{ours: map[string]bool{}}
	for _, spec := range parsed.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		name := path.Base(imported)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		s.ours[name] = strings.HasPrefix(imported, module)
	}
	for _, d := range parsed.Decls {
		s.declaration(d)
	}
	return s.broken, nil
}

// surface is what a file exports.
type surface struct {
	ours   map[string]bool // packages of this module by the name of their import
	broken []string
}

func (s *surface) declaration(d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && (d.Recv == nil || ast.IsExported(receiver(d.Recv.List[0].Type))) {
			s.check(d.Name.Name, d.Type)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				if spec.Name.IsExported() && !spec.Assign.IsValid() {
					s.check(spec.Name.Name, spec.Type)
				}
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					if name.IsExported() && spec.Type != nil {
						s.check(name.Name, spec.Type)
					}
				}
			}
		}
	}
}

// check looks for types of this module in the visible parts of a type.
func (s *surface) check(of string, t ast.Expr) {
	ast.Inspect(t, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncType:
			s.fields(of, n.Params, false)
			s.fields(of, n.Results, false)
			return false
		case *ast.StructType:
			s.fields(of, n.Fields, true)
			return false
		case *ast.InterfaceType:
			s.fields(of, n.Methods, true)
			return false
		case *ast.SelectorExpr:
			if pkg, ok := n.X.(*ast.Ident); ok && s.ours[pkg.Name] {
				s.broken = append(s.broken, fmt.Sprintf("%s names %s.%s", of, pkg.Name, n.Sel.Name))
			}
		}
		return true
	})
}

// fields checks parameters, or the exported fields or methods of a type.
func (s *surface) fields(of string, list *ast.FieldList, exported bool) {
	if list == nil {
		return
	}
	for _, f := range list.List {
		seen := !exported || len(f.Names) == 0
		for _, name := range f.Names {
			seen = seen || name.IsExported()
		}
		if seen {
			s.check(of, f.Type)
		}
	}
}
