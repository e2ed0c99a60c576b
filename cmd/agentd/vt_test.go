package main

import (
	"io"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"
)

// vt is a terminal as far as chat uses one: it knows what ends up on the
// screen. What it does not know it reports.
type vt struct {
	mu            sync.Mutex
	width, height int
	rows          [][]string // a cell is a character with what combines with it
	row, column   int        // column is width behind a full row
	pending       string     // the beginning of a sequence
	strange       []string
	changed       chan struct{}
}

func newVT(width, height int) *vt {
	v := &vt{width: width, height: height, changed: make(chan struct{})}
	for range height {
		v.rows = append(v.rows, make([]string, width))
	}
	return v
}

// Write takes the output of a program behind the terminal's driver.
func (v *vt) Write(b []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	text := v.pending + string(b)
	for text != "" {
		n := v.take(text)
		if n == 0 {
			break
		}
		text = text[n:]
	}
	v.pending = text
	close(v.changed)
	v.changed = make(chan struct{})
	return len(b), nil
}

// copyFrom takes what a program writes, until it ends, which is an error.
func (v *vt) copyFrom(tty io.Reader) (int64, error) { return io.Copy(v, tty) }

// take returns how many bytes it has used; 0 asks for more.
func (v *vt) take(text string) int {
	if text[0] == '\x1b' {
		return v.escape(text)
	}
	if !utf8.FullRuneInString(text) {
		return 0
	}
	r, size := utf8.DecodeRuneInString(text)
	switch r {
	case '\r':
		v.column = 0
	case '\n':
		v.down()
	case '\b':
		v.column = max(min(v.column, v.width-1)-1, 0)
	case '\t':
		v.column = min((v.column/tabStop+1)*tabStop, v.width-1)
	default:
		if r < ' ' || r == 0x7f {
			v.strange = append(v.strange, strconv.QuoteRune(r))
			break
		}
		v.put(string(r), columns(r))
	}
	return size
}

func (v *vt) put(cell string, n int) {
	if n == 0 {
		if at := min(v.column, v.width) - 1; at >= 0 {
			v.rows[v.row][at] += cell
		}
		return
	}
	if v.column+n > v.width {
		v.column = 0
		v.down()
	}
	v.rows[v.row][v.column] = cell
	for i := 1; i < n; i++ {
		v.rows[v.row][v.column+i] = ""
	}
	v.column += n
}

func (v *vt) down() {
	if v.row < v.height-1 {
		v.row++
		return
	}
	v.rows = append(v.rows[1:], make([]string, v.width))
}

func (v *vt) escape(text string) int {
	if len(text) < 2 {
		return 0
	}
	if text[1] != '[' {
		v.strange = append(v.strange, strconv.Quote(text[:2]))
		return 2
	}
	end := strings.IndexFunc(text[2:], func(r rune) bool { return r >= '@' && r <= '~' })
	if end < 0 {
		return 0
	}
	argument, final := text[2:2+end], text[2+end]
	n, err := strconv.Atoi(argument)
	if err != nil {
		n = 1
	}
	at := min(v.column, v.width-1)
	switch {
	case final == 'm', strings.HasPrefix(argument, "?"):
	case final == 'A':
		v.row, v.column = max(v.row-n, 0), at
	case final == 'B':
		v.row, v.column = min(v.row+n, v.height-1), at
	case final == 'C':
		v.column = min(at+n, v.width-1)
	case final == 'D':
		v.column = max(at-n, 0)
	case final == 'G':
		v.column = min(n, v.width) - 1
	case final == 'H':
		v.row, v.column = 0, 0
	case final == 'J', final == 'K':
		clear(v.rows[v.row][at:])
		for i := v.row + 1; final == 'J' && i < v.height; i++ {
			clear(v.rows[i])
		}
	default:
		v.strange = append(v.strange, strconv.Quote(text[:2+end+1]))
	}
	return 2 + end + 1
}

// String returns the screen, without blanks at the ends.
func (v *vt) String() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.screen()
}

func (v *vt) screen() string {
	var lines []string
	for _, row := range v.rows {
		line := ""
		for i := 0; i < len(row); i++ {
			cell := row[i]
			if cell == "" {
				cell = " "
			} else if textColumns(cell) == 2 {
				i++
			}
			line += cell
		}
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

// await returns the screen once ok likes it.
func (v *vt) await(t *testing.T, what string, ok func(screen string) bool) string {
	t.Helper()
	deadline := time.After(patience)
	for {
		v.mu.Lock()
		screen, changed := v.screen(), v.changed
		v.mu.Unlock()
		if ok(screen) {
			return screen
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("no %s on the screen:\n%s", what, screen)
		}
	}
}

func (v *vt) awaitText(t *testing.T, text string) string {
	t.Helper()
	return v.await(t, strconv.Quote(text), func(screen string) bool { return strings.Contains(screen, text) })
}
