package yamlfile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// MaxErrors is how many errors are told of what is wrong with some files.
const MaxErrors = 20

// Error is one thing that is wrong with a file.
type Error struct {
	// File is the name that was given to [Parse].
	File string
	// Line and Column count from 1, in characters; 0 where it is about the file.
	Line, Column int
	// Text says what was expected.
	Text string
}

// Error returns FILE:LINE:COLUMN: text.
func (e *Error) Error() string {
	if e.Line == 0 {
		return e.File + ": " + e.Text
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Text)
}

// Errors are what is wrong with some files, in their order, at most [MaxErrors].
type Errors struct {
	List []*Error
	// More is how many there are beside those of List.
	More int
}

// Error returns a line per error.
func (e *Errors) Error() string {
	lines := make([]string, 0, len(e.List)+1)
	for _, one := range e.List {
		lines = append(lines, one.Error())
	}
	if e.More > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", e.More))
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the errors of List.
func (e *Errors) Unwrap() []error {
	out := make([]error, 0, len(e.List))
	for _, one := range e.List {
		out = append(out, one)
	}
	return out
}

// Place is a position in a file. Both count from 1, the column in characters; the
// zero value is the file as a whole.
type Place struct{ Line, Column int }

// Problems gathers what is wrong with files that belong together. It keeps a
// bounded number. One goroutine uses it at a time; the zero value is ready.
type Problems struct {
	order map[string]int // of the files, as they were met
	list  []*Error
	more  int
}

// maxKept is more than are told, so that those told are the first in the file
// and not the first that were met.
const maxKept = 10 * MaxErrors

// rank gives a file its place behind those that were met before.
func (p *Problems) rank(file string) {
	if p.order == nil {
		p.order = map[string]int{}
	}
	if _, met := p.order[file]; !met {
		p.order[file] = len(p.order)
	}
}

// Add notes one. The text says what was expected.
func (p *Problems) Add(file string, at Place, format string, args ...any) {
	p.rank(file)
	if len(p.list) >= maxKept {
		p.more++
		return
	}
	p.list = append(p.list, &Error{File: file, Line: at.Line, Column: at.Column, Text: fmt.Sprintf(format, args...)})
}

// Count is how many there are.
func (p *Problems) Count() int { return len(p.list) + p.more }

// Err is nil if nothing is wrong, and else an [*Errors] of what was noted.
func (p *Problems) Err() error {
	if len(p.list) == 0 {
		return nil
	}
	list := slices.Clone(p.list)
	slices.SortStableFunc(list, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(p.order[a.File], p.order[b.File]), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	out := &Errors{List: list, More: p.more}
	if n := len(out.List); n > MaxErrors {
		out.List, out.More = out.List[:MaxErrors], out.More+n-MaxErrors
	}
	return out
}
