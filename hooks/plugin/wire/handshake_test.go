package wire_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/seed-2ca4966b/agentd/hooks/plugin/wire"
)

const line = "1|1|unix|/tmp/plugin-dir1/plugin2|grpc|MIIB8TCCAVKgAwIBAgIQ+/a"

// split reads what a plugin printed.
func split(t interface{ Fatal(...any) }, r io.Reader) (handshake, rest string) {
	var b bytes.Buffer
	out, err := io.ReadAll(wire.Handshake(r, &b))
	if err != nil {
		t.Fatal(err)
	}
	return string(out), b.String()
}

func TestTheHandshakeIsFoundInWhateverIsPrinted(t *testing.T) {
	t.Parallel()
	for printed, want := range map[string][2]string{
		line + "\n":                    {line + "\n", ""},
		line + "\r\nmore\n":            {line + "\n", "more\n"},
		line:                           {"", line}, // it is not whole
		"":                             {"", ""},
		"hello\n\nx" + line + "\nmore": {line + "\n", "hello\n\nxmore"},
		// A number right before it.
		"3 of 1" + line + "\n":                     {line + "\n", "3 of 1"},
		"1|2|3|4\n1|x|unix|a|grpc\n" + line + "\n": {line + "\n", "1|2|3|4\n1|x|unix|a|grpc\n"},
		// The first one counts: it is what others would have read, too.
		line + "\n" + line + "\n":                      {line + "\n", line + "\n"},
		"1|9|tcp|127.0.0.1:1|netrpc\n":                 {"1|9|tcp|127.0.0.1:1|netrpc\n", ""},
		"1|1|unix|/s|grpc||true\n":                     {"1|1|unix|/s|grpc||true\n", ""},
		"2|1|unix|/s|grpc\n":                           {"", "2|1|unix|/s|grpc\n"},
		strings.Repeat("x", 1<<20) + line + "\nmore\n": {line + "\n", strings.Repeat("x", 1<<20) + "more\n"},
		strings.Repeat("1|1|unix|", 1<<12) + "\n":      {"", strings.Repeat("1|1|unix|", 1<<12) + "\n"},
	} {
		handshake, rest := split(t, strings.NewReader(printed))
		if handshake != want[0] || rest != want[1] {
			t.Errorf("%.80q: %.80q, rest %.80q (%d bytes)\nwant %.80q, %.80q (%d bytes)", printed, handshake, rest, len(rest), want[0], want[1], len(want[1]))
		}
	}
}

func TestHowItIsReadMakesNoDifferenceToTheHandshake(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		printed := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{line, "\n", "x", "1|", "1|1|unix|", "|grpc", strings.Repeat("y", 6000)}), 0, 8).Draw(t, "parts"), "")
		handshake, rest := split(t, strings.NewReader(printed))
		slow, slowRest := split(t, iotest.OneByteReader(strings.NewReader(printed)))
		if slow != handshake || slowRest != rest {
			t.Fatalf("%q, %q\nbyte by byte %q, %q", handshake, rest, slow, slowRest)
		}
		if whole, ok := strings.CutSuffix(handshake, "\n"); ok && !strings.Contains(printed, whole) {
			t.Fatalf("%q was not printed", whole)
		}
		if len(handshake)+len(rest) != len(printed) {
			t.Fatalf("%d bytes are %d and %d", len(printed), len(handshake), len(rest))
		}
	})
}

func TestAnErrorOfThePipeEndsTheHandshake(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	if _, err := io.ReadAll(wire.Handshake(iotest.ErrReader(broken), io.Discard)); !errors.Is(err, broken) {
		t.Error(err)
	}
}
