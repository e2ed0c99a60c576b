package pluginhost

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// printing is an output whose clock the test has.
func printing() (*output, *bytes.Buffer, *time.Time) {
	var log bytes.Buffer
	now := time.Unix(0, 0)
	plain := slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
			return slog.Attr{}
		}
		return a
	}}
	return newOutput(slog.New(slog.NewTextHandler(&log, &plain)), func() time.Time { return now }), &log, &now
}

func TestLinesAreLoggedHoweverTheyCome(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching("[a\n\r\x1b]{0,60}").Draw(t, "text")
		whole, want, _ := printing()
		_, _ = io.WriteString(whole.stream("stdout"), text)
		whole.flush()
		split, got, _ := printing()
		w := split.stream("stdout")
		for rest := text; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "cut")
			if m, err := io.WriteString(w, rest[:n]); m != n || err != nil {
				t.Fatal(m, err)
			}
			rest = rest[n:]
		}
		split.flush()
		if got.String() != want.String() || split.beginning() != whole.beginning() {
			t.Fatalf("%q\nwant %q", got, want)
		}
		if strings.Contains(got.String(), "\x1b") || strings.Contains(split.beginning(), "\n") {
			t.Fatalf("%q is not escaped", got)
		}
	})
}

func TestALineOfAnyLengthTakesNoMoreThanItsBeginning(t *testing.T) {
	t.Parallel()
	o, log, _ := printing()
	w := o.stream("stderr")
	for range 1000 {
		_, _ = io.WriteString(w, strings.Repeat("x", 10<<10))
	}
	l, _ := w.(*lines)
	if len(l.kept) != maxLine || cap(l.kept) > 4*maxLine || len(o.head) != maxHead {
		t.Errorf("%d of %d bytes are kept, and %d", len(l.kept), cap(l.kept), len(o.head))
	}
	o.flush()
	want := fmt.Sprintf("msg=\"plugin printed\" stream=stderr line=%s cut_bytes=%d\n", strings.Repeat("x", maxLine), 1000*10<<10-maxLine)
	if log.String() != want {
		t.Errorf("logged %.100q", log)
	}
}

func TestMoreLinesThanAreLoggedAreCounted(t *testing.T) {
	t.Parallel()
	o, log, now := printing()
	w := o.stream("stdout")
	for range lineBurst + 100 {
		_, _ = io.WriteString(w, "ab\n")
	}
	*now = now.Add(time.Second / lineRate)
	_, _ = io.WriteString(w, "later\nlost\n")
	o.flush()
	got := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(got) != lineBurst+3 || got[lineBurst] != `msg="plugin printed more than is logged" lines=100 bytes=200` ||
		got[lineBurst+1] != `msg="plugin printed" stream=stdout line=later` || got[lineBurst+2] != `msg="plugin printed more than is logged" lines=1 bytes=4` {
		t.Errorf("logged %d lines, the last %q", len(got), got[max(0, len(got)-3):])
	}
}

func TestAFloodIsReadNoFasterThanItsShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const message = 1 << 10
		seconds := func(bytes, perSecond int) time.Duration {
			return time.Duration(bytes) * time.Second / time.Duration(perSecond)
		}
		o, _, _ := printing()
		out, errs := o.stream("stdout"), o.stream("stderr")
		pauses, text := 0, make([]byte, message)
		write := func(what string, w io.Writer, bytes int, want time.Duration) {
			began := time.Now()
			for range bytes / message {
				before := time.Now()
				if n, err := w.Write(text); n != message || err != nil {
					t.Fatal(n, err)
				}
				if time.Since(before) > 0 {
					pauses++
				}
			}
			slack := seconds(2*readChunk, readRate)
			if took := time.Since(began); took < want-slack || took > want+slack {
				t.Errorf("%s took %s, want %s", what, took, want)
			}
		}
		// While it is read it may be more.
		soon := seconds(readMuch-readAtOnce, readFast-readRate)
		much := readAtOnce + int(soon.Seconds()*readFast)
		write("what is printed at first", out, readAtOnce, 0)
		write("what comes then", errs, much-readAtOnce, soon) // both ways to print have one share
		write("what is read in three seconds", out, 3*readRate, 3*time.Second)
		time.Sleep(time.Hour) //nolint:forbidigo // under synctest, where time is fake
		write("later, as much", out, much, soon)
		if often := (2*much + 4*readRate) / readChunk; pauses == 0 || pauses > often {
			t.Errorf("it waits %d times, want at most %d", pauses, often)
		}
	})
}
