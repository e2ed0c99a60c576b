package sse

import (
	"errors"
	"strconv"
	"testing"
)

// The table of whole requests is apitest.Cursors; this covers what no HTTP
// client can send.
func TestParseCursor(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]int64{"": 0, "0": 0, "7": 7, "007": 7, "9223372036854775807": 1<<63 - 1} {
		if got, err := ParseCursor(s); got != want || err != nil {
			t.Errorf("%q: %d, %v, want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"5\n6", "5\r", "\x00", " 5", "5 ", "+5", "-0", "9223372036854775808", "00000000000000000001", "\xff", "٣"} {
		if got, err := ParseCursor(s); !errors.Is(err, ErrBadCursor) || got != 0 {
			t.Errorf("%q: %d, %v, want ErrBadCursor", s, got, err)
		}
	}
}

func FuzzParseCursor(f *testing.F) {
	for _, s := range []string{"", "0", "abc", "-1", "1e3", "9223372036854775808", "٣", "5\n6"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseCursor(s)
		switch {
		case err != nil && (n != 0 || !errors.Is(err, ErrBadCursor)):
			t.Errorf("%q: %d, %v", s, n, err)
		case n < 0:
			t.Errorf("%q: negative %d", s, n)
		case err == nil && s != "":
			want, err := strconv.ParseInt(s, 10, 64)
			if err != nil || want != n {
				t.Errorf("%q: %d, want %d, %v", s, n, want, err)
			}
		}
	})
}
