package yamlfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"
)

// File is one YAML file that is being read: its values, and where they stand.
// One goroutine reads it at a time.
type File struct {
	// Name is what errors call it.
	Name string
	// Root is the value of its one document.
	Root *yaml.Node

	lines    [][]rune
	problems *Problems
}

// What a file may have.
const (
	// MaxBytes is how long one may be.
	MaxBytes = 256 << 10
	// MaxTextBytes is how long one text in it may be.
	MaxTextBytes = 16 << 10
	// MaxIDBytes is how long an id may be.
	MaxIDBytes = 64

	maxNodes     = 50_000 // values in one file
	maxNesting   = 32     // levels
	maxGlobs     = 100    // in one list
	maxGlobBytes = 256
)

// errNotRegular: what is read from such a file is not there a second time, and may
// never come.
var errNotRegular = errors.New("is no regular file")

// Read returns what a regular file holds, and no more than [Parse] needs to see
// that it is too long. The error names the path.
func Read(path string) ([]byte, error) {
	// Without O_NONBLOCK a pipe would keep whoever opens it until somebody writes.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, &fs.PathError{Op: "read", Path: path, Err: syscall.EISDIR}
	case !info.Mode().IsRegular():
		return nil, &fs.PathError{Op: "read", Path: path, Err: errNotRegular}
	}
	return io.ReadAll(io.LimitReader(f, MaxBytes+1))
}

// Parse reads the YAML of a file. It returns nil if there is nothing to go on
// with, and has noted why in p. Expected is what the file should be, such as "a
// mapping with the key rules".
func Parse(name string, text []byte, expected string, p *Problems) *File {
	f := &File{Name: name, problems: p}
	p.rank(name)
	switch {
	case len(text) > MaxBytes:
		p.Add(name, Place{}, "the file has %d bytes; at most %d are read", len(text), MaxBytes)
		return nil
	case !utf8.Valid(text):
		p.Add(name, Place{}, "the file is not UTF-8")
		return nil
	case strings.TrimSpace(string(text)) == "":
		p.Add(name, Place{}, "the file is empty; expected %s", expected)
		return nil
	}
	if at, r := otherBreak(string(text)); r != 0 {
		p.Add(name, at, "U+%04X ends a line for some readers and not for others: write line feeds between lines, and this one in a quoted text as an escape", r)
		return nil
	}
	var doc yaml.Node
	err := yaml.Load(text, &doc, yaml.WithPlugin(loaderlimits.New(loaderlimits.DepthValue(maxNesting), loaderlimits.AliasNone())))
	if err != nil {
		at := Place{}
		var bad *yaml.LoadError
		if errors.As(err, &bad) {
			at, err = Place{Line: bad.Mark.Line, Column: bad.Mark.Column}, errors.New(bad.Message)
		}
		p.Add(name, at, "not YAML that is read here: %s", strings.TrimPrefix(err.Error(), "yaml: "))
		return nil
	}
	for line := range strings.Lines(string(text)) {
		f.lines = append(f.lines, []rune(strings.TrimRight(line, "\r\n")))
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		p.Add(name, Place{}, "expected one document: %s", expected)
		return nil
	}
	f.Root = doc.Content[0]
	budget := maxNodes
	if !f.sound(f.Root, &budget) {
		return nil
	}
	return f
}

// ErrorAt notes what is wrong at a node.
func (f *File) ErrorAt(n *yaml.Node, format string, args ...any) {
	f.problems.Add(f.Name, PlaceOf(n), format, args...)
}

// ErrorIn notes what is wrong at a character of a scalar's value: see [File.Find].
func (f *File) ErrorIn(at Place, format string, args ...any) {
	f.problems.Add(f.Name, at, format, args...)
}

// Problems are where what is wrong is noted.
func (f *File) Problems() *Problems { return f.problems }

// PlaceOf is where a node begins.
func PlaceOf(n *yaml.Node) Place { return Place{Line: n.Line, Column: n.Column} }

// sound refuses what YAML has and such a file does not: names for other
// places, tags, and a key twice.
func (f *File) sound(n *yaml.Node, budget *int) bool {
	*budget--
	switch {
	case *budget < 0:
		f.ErrorAt(n, "the file has too many values")
		return false
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		f.ErrorAt(n, "anchors and aliases are not read here; write it out")
		return false
	case n.Style&yaml.TaggedStyle != 0:
		f.ErrorAt(n, "tags such as %s are not read here", n.Tag)
		return false
	}
	ok := true
	var seen map[string]bool
	if n.Kind == yaml.MappingNode {
		seen = make(map[string]bool, len(n.Content)/2)
	}
	for i, c := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			switch {
			case c.Kind != yaml.ScalarNode:
				f.ErrorAt(c, "expected a text as the key")
				ok = false
			case seen[c.Value]:
				f.ErrorAt(c, "the key %q stands twice", Cut(c.Value, MaxIDBytes))
				ok = false
			}
			seen[c.Value] = true
		}
		ok = f.sound(c, budget) && ok
	}
	return ok
}

// Cut shortens what is shown of a text to n bytes, not inside a character.
func Cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// Find is where the character at offset of a scalar's value stands in the file.
// White space is not always where it was written: lines are folded. So what is
// compared is everything else, and a place between two words is that of the
// second. Where the two do not go together it is the beginning of the scalar.
func (f *File) Find(n *yaml.Node, value []rune, offset int) Place {
	at := PlaceOf(n)
	line, column := at.Line-1, at.Column-1
	switch {
	case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		line, column = line+1, 0
	case n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0:
		column++
	}
	double := n.Style&yaml.DoubleQuotedStyle != 0
	single := n.Style&yaml.SingleQuotedStyle != 0
	for i := 0; ; i++ {
		for i < offset && i < len(value) && blank(value[i]) {
			i++
		}
		if i >= len(value) {
			return Place{Line: line + 1, Column: column + 1}
		}
		for {
			switch {
			case line >= len(f.lines):
				return at
			case column >= len(f.lines[line]):
				line, column = line+1, 0
				continue
			case blank(f.lines[line][column]):
				column++
				continue
			case double && f.lines[line][column] == '\\' && column+1 < len(f.lines[line]) && strings.ContainsRune("ntr ", f.lines[line][column+1]):
				column += 2
				continue
			case double && f.lines[line][column] == '\\' && column+1 == len(f.lines[line]):
				column++
				continue
			}
			break
		}
		if i >= offset {
			return Place{Line: line + 1, Column: column + 1}
		}
		step, ok := written(f.lines[line][column:], value[i], single, double)
		if !ok {
			return at
		}
		column += step
	}
}

func blank(r rune) bool { return r == ' ' || r == '\t' || r == '\n' }

// written is how many characters stand in the file for r.
func written(raw []rune, r rune, single, double bool) (int, bool) {
	switch {
	case single && r == '\'' && len(raw) > 1 && raw[1] == '\'':
		return 2, true
	case double && raw[0] == '\\' && len(raw) > 1:
		switch raw[1] {
		case 'x':
			return 4, true
		case 'u':
			return 6, true
		case 'U':
			return 10, true
		}
		return 2, true
	}
	return 1, raw[0] == r
}

// otherBreak finds the first character that YAML takes for the end of a line and
// most programs do not, so that the lines in an error would be others than those
// in an editor. It returns 0 for none.
func otherBreak(text string) (Place, rune) {
	line := 0
	for one := range strings.Lines(text) {
		line++
		if rest, ok := strings.CutSuffix(one, "\n"); ok {
			one = strings.TrimSuffix(rest, "\r")
		}
		if i := strings.IndexAny(one, "\r\u0085\u2028\u2029"); i >= 0 {
			r, _ := utf8.DecodeRuneInString(one[i:])
			return Place{Line: line, Column: utf8.RuneCountInString(one[:i]) + 1}, r
		}
	}
	return Place{}, 0
}
