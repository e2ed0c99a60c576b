package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Error is one thing that is wrong with a file of rules.
type Error struct {
	// File is the name that was given to [Load] or [Parse].
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

// Errors are what is wrong with a set of rules, in the order of the files, at
// most [MaxErrors].
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

// place is a position in a file.
type place struct{ line, column int }

// problems gathers what is wrong with one set. It keeps a bounded number.
type problems struct {
	order map[string]int // of the files
	list  []*Error
	more  int
}

// maxKept is more than are told, so that those told are the first in the file
// and not the first that were met.
const maxKept = 10 * MaxErrors

func (p *problems) add(file string, at place, format string, args ...any) {
	if len(p.list) >= maxKept {
		p.more++
		return
	}
	p.list = append(p.list, &Error{File: file, Line: at.line, Column: at.column, Text: fmt.Sprintf(format, args...)})
}

// err is nil if nothing is wrong.
func (p *problems) err() error {
	if len(p.list) == 0 {
		return nil
	}
	slices.SortStableFunc(p.list, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(p.order[a.File], p.order[b.File]), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	out := &Errors{List: p.list, More: p.more}
	if n := len(out.List); n > MaxErrors {
		out.List, out.More = out.List[:MaxErrors], out.More+n-MaxErrors
	}
	return out
}
