package main

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// cooked is a terminal's driver: a line break returns the carriage.
type cooked struct{ *vt }

func (c cooked) Write(b []byte) (int, error) {
	_, err := c.vt.Write([]byte(strings.ReplaceAll(string(b), "\n", "\r\n")))
	return len(b), err
}

func newScreen(width, height int) (*screen, *vt) {
	v := newVT(width, height)
	return &screen{out: cooked{v}, size: func() (int, int) { return width, height }}, v
}

func TestScreenTakesBackExactlyTheBlock(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		width, height := rapid.IntRange(2, 12).Draw(t, "width"), rapid.SampledFrom([]int{6, 50}).Draw(t, "height")
		s, v := newScreen(width, height)
		pieces := rapid.SliceOfN(rapid.StringOfN(rapid.SampledFrom([]rune("ab \n\t日e\u0301\r\x1b\x07")), 0, 9, -1), 0, 4)
		s.line(plain, "k")
		before := v.String()
		for _, piece := range pieces.Draw(t, "block") {
			if rapid.Bool().Draw(t, "status") {
				s.setStatus("away")
			}
			s.write(rapid.SampledFrom([]string{plain, dim}).Draw(t, "style"), piece)
		}
		if rapid.Bool().Draw(t, "status at the end") {
			s.setStatus("away")
		}
		if !s.erase() {
			t.Skip("it was longer than the screen")
		}
		s.write(plain, "z")
		// What was above may have scrolled away.
		if got, want := v.String(), before+"\nz"; got != want && (got != "z" || height == 50) {
			t.Fatalf("screen:\n%s\nwant:\n%s", got, want)
		}
		if len(v.strange) > 0 {
			t.Fatalf("sent to the terminal: %s", v.strange)
		}
	})
}

func TestScreenStatusLeavesTheTextAsItWas(t *testing.T) {
	t.Parallel()
	for length := range 12 {
		t.Run(fmt.Sprint(length), func(t *testing.T) {
			t.Parallel()
			s, v := newScreen(5, 6)
			s.write(plain, strings.Repeat("x", length))
			s.setStatus("the server is away")
			if !strings.Contains(v.String(), "the…") {
				t.Errorf("no status on the screen:\n%s", v)
			}
			s.write(plain, "yz")
			plainScreen, want := newScreen(5, 6)
			plainScreen.write(plain, strings.Repeat("x", length)+"yz")
			if v.String() != want.String() {
				t.Errorf("screen:\n%s\nwant:\n%s", v, want)
			}
		})
	}
}

func TestScreenSaysThatABlockWasLongerThanTheScreen(t *testing.T) {
	t.Parallel()
	s, v := newScreen(10, 4)
	s.line(plain, "before")
	s.write(plain, "1\n2\n3\n4\n5")
	if s.erase() {
		t.Error("erased what has left the screen")
	}
	if got := v.String(); got != "" {
		t.Errorf("screen:\n%s", got)
	}
}

func TestOneLine(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		text  string
		limit int
		want  string
	}{
		{"short", 10, "short"},
		{"  a\n b\tc ", 10, "a b c"},
		{"exactly10!", 10, "exactly10!"},
		{"exactly 11!", 10, "exactly 1…"},
		{"日本語", 5, "日本…"},
		{"a\x1b[2Jb", 10, "a\uFFFD[2Jb"},
	} {
		if got := oneLine(test.text, test.limit); got != test.want || textColumns(got) > test.limit {
			t.Errorf("oneLine(%q, %d) = %q, want %q", test.text, test.limit, got, test.want)
		}
	}
}
