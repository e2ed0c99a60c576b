package loop_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestToolsAreEnteredByOneWayOnly: what dispatch takes is made by the gate
// that comes last, and nothing but dispatch enters a tool.
func TestToolsAreEnteredByOneWayOnly(t *testing.T) {
	t.Parallel()
	made, entered := doors(t)
	if want := []string{"clear"}; !slices.Equal(made, want) {
		t.Errorf("clearances are made in %v; want %v", made, want)
	}
	if want := []string{"dispatch"}; !slices.Equal(entered, want) {
		t.Errorf("tools are entered in %v; want %v", entered, want)
	}
}

// doors lists the functions of this package that make a clearance, and those
// that call a method Call.
func doors(t *testing.T) (made, entered []string) {
	t.Helper()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			name := "a variable"
			if f, ok := d.(*ast.FuncDecl); ok {
				name = f.Name.Name
			}
			ast.Inspect(d, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.CompositeLit:
					if id, ok := n.Type.(*ast.Ident); ok && id.Name == "clearance" {
						made = append(made, name)
					}
				case *ast.CallExpr:
					if sel, ok := n.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "Call" {
						entered = append(entered, name)
					}
					if id, ok := n.Fun.(*ast.Ident); ok && id.Name == "new" && len(n.Args) == 1 {
						if arg, ok := n.Args[0].(*ast.Ident); ok && arg.Name == "clearance" {
							made = append(made, name)
						}
					}
				case *ast.ValueSpec:
					if id, ok := n.Type.(*ast.Ident); ok && id.Name == "clearance" {
						made = append(made, name)
					}
				}
				return true
			})
		}
	}
	return made, entered
}
