package main

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestWhatIsTypedIsText(t *testing.T) {
	t.Parallel()
	const in, want = "a\xffé\xc3(日本\uFFFD\r\x00\xe6\x97z", "a?é?(日本?\r\x00??z"
	broken := errors.New("broken")
	for name, wrap := range map[string]func(io.Reader) io.Reader{
		"AtOnce":     func(r io.Reader) io.Reader { return r },
		"ByteByByte": iotest.OneByteReader,
		"ToTheError": func(r io.Reader) io.Reader { return io.MultiReader(r, iotest.ErrReader(broken)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := io.ReadAll(iotest.OneByteReader(&typed{in: wrap(strings.NewReader(in + strings.Repeat("é", 300)))}))
			if string(got) != want+strings.Repeat("é", 300) || err != nil && !errors.Is(err, broken) || (err != nil) != (name == "ToTheError") {
				t.Errorf("read %q, %v", got, err)
			}
		})
	}
}
