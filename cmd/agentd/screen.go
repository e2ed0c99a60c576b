package main

import (
	"fmt"
	"io"
	"strings"
)

const (
	plain     = ""
	dim       = "\x1b[2m"
	red       = "\x1b[31m"
	resetText = "\x1b[0m"
	// clearBelow clears from the cursor to the end of the screen.
	clearBelow = "\x1b[J"

	tabStop = 8
)

// screen writes to a terminal and can take back what it wrote last: the block,
// which begins in the first column. It is used by one goroutine.
type screen struct {
	out io.Writer
	// size returns the terminal's columns and rows.
	size func() (columns, rows int)
	// block is the text since the block began.
	block strings.Builder
	// status says that a status line stands below the block.
	status bool
}

// write adds text to the block.
func (s *screen) write(style, text string) {
	if text = printable(text); text == "" {
		return
	}
	s.clearStatus()
	s.block.WriteString(text)
	fmt.Fprint(s.out, styled(style, text))
}

// styled keeps a style from running over the ends of lines, which some
// terminals fill with it.
func styled(style, text string) string {
	if style == plain {
		return text
	}
	return style + strings.ReplaceAll(text, "\n", resetText+"\n"+style) + resetText
}

// freshLine makes the next text begin in the first column.
func (s *screen) freshLine() {
	if text := s.block.String(); text != "" && !strings.HasSuffix(text, "\n") {
		s.write(plain, "\n")
	}
}

// begin ends the block, which stays where it is, and begins another.
func (s *screen) begin() {
	s.clearStatus()
	s.freshLine()
	s.block.Reset()
}

// line writes a block of one line.
func (s *screen) line(style, text string) {
	s.begin()
	s.write(style, text+"\n")
	s.begin()
}

// erase takes the block back. It returns false if a part of it had left the
// screen at the top and stays in the terminal's memory.
func (s *screen) erase() (whole bool) {
	s.clearStatus()
	width, height := s.size()
	rows, _ := end(s.block.String(), width)
	s.block.Reset()
	switch {
	case rows >= height:
		fmt.Fprint(s.out, "\x1b[H"+clearBelow)
		return false
	case rows > 0:
		fmt.Fprintf(s.out, "\x1b[%dA", rows)
	}
	fmt.Fprint(s.out, "\r"+clearBelow)
	return true
}

// setStatus shows a line below the block, which the next text takes away.
func (s *screen) setStatus(text string) {
	s.clearStatus()
	width, _ := s.size()
	fmt.Fprint(s.out, "\n"+styled(dim, oneLine(text, width-1)))
	s.status = true
}

// clearStatus puts the cursor back to the end of the block.
func (s *screen) clearStatus() {
	if !s.status {
		return
	}
	s.status = false
	width, _ := s.size()
	_, column := end(s.block.String(), width)
	if column >= width {
		// The cursor cannot be put behind the last column again, so the text
		// goes on where it would have gone on: in the next row.
		s.block.WriteString("\n")
		fmt.Fprint(s.out, "\r"+clearBelow)
		return
	}
	fmt.Fprintf(s.out, "\r%s\x1b[A\x1b[%dG", clearBelow, column+1)
}

// end is where the cursor stands behind text that began in row 0, column 0 of a
// terminal that many columns wide. Behind a full row it is column width.
func end(text string, width int) (row, column int) {
	for _, r := range text {
		switch r {
		case '\n':
			row, column = row+1, 0
			continue
		case '\t':
			column = min((column/tabStop+1)*tabStop, width-1)
			continue
		}
		n := columns(r)
		if column+n > width {
			row, column = row+1, 0
		}
		column += n
	}
	return row, column
}
