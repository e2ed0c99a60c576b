package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// frames reads all frames; a cut one ends in a tilde.
func frames(r io.Reader) (out []string, err error) {
	f := NewFrameReader(r)
	for {
		fr, err := f.Next()
		if err != nil {
			return out, err
		}
		s := string(fr.Data)
		if fr.Cut {
			s += "~"
		}
		out = append(out, s)
	}
}

func TestFrames(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, in string
		want     []string
	}{
		{"Nothing", "", nil},
		{"One", "data: a\n\n", []string{"a"}},
		{"NoSpace", "data:a\n\n", []string{"a"}},
		{"OneSpaceOnly", "data:  a\n\n", []string{" a"}},
		{"CRLF", "data: a\r\n\r\ndata: b\r\n\r\n", []string{"a", "b"}},
		{"CR", "data: a\r\rdata: b\r\r", []string{"a", "b"}},
		{"Mixed", "data: a\r\n\ndata: b\n\r\ndata: c\r\n\r", []string{"a", "b", "c"}},
		{"Comments", ": hi\n\n:\ndata: a\n: there\n\n", []string{"a"}},
		{"OtherFields", "event: x\nid: 1\nretry: 5\ndata: a\n\n", []string{"a"}},
		{"EventOnly", "event: ping\n\ndata: a\n\n", []string{"a"}},
		{"SimilarField", "database: x\n\ndata: a\n\n", []string{"a"}},
		{"EmptyData", "data:\n\ndata: \n\ndata\n\n", []string{"", "", ""}},
		{"TwoLines", "data: a\ndata: b\n\n", []string{"a\nb"}},
		{"TwoLinesCRLF", "data: a\r\ndata: b\r\n\r\n", []string{"a\nb"}},
		{"BlankLines", "\n\n\ndata: a\n\n\n\n", []string{"a"}},
		{"ByteOrderMark", "\xEF\xBB\xBFdata: a\n\n", []string{"a"}},
		{"MarkLater", "\n\xEF\xBB\xBFdata: a\n\n", nil},
		{"NoBlankLine", "data: a\n", []string{"a"}},
		{"NoLineEnd", "data: a\n\ndata: b", []string{"a", "b~"}},
		{"CutInAField", "data: a\nda", []string{"a"}},
		{"CutInAName", "dat", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, r := range []io.Reader{strings.NewReader(tt.in), iotest.OneByteReader(strings.NewReader(tt.in)), iotest.DataErrReader(strings.NewReader(tt.in))} {
				if got, err := frames(r); !errors.Is(err, io.EOF) || !slices.Equal(got, tt.want) {
					t.Errorf("got %q and error %v, want %q", got, err, tt.want)
				}
			}
		})
	}
}

func TestAFrameComesBeforeTheErrorThatEndsIt(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	got, err := frames(io.MultiReader(strings.NewReader("data: a\n\ndata: b\n"), iotest.ErrReader(broken)))
	if !errors.Is(err, broken) || !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("got %q and error %v", got, err)
	}
}

func TestTooLongIsAnErrorAndNotATruncation(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", MaxLine)
	half := "data: " + long[:MaxLine/2] + "\n"
	for name, in := range map[string]string{
		"Line": "data: a\n\ndata: " + long + "\n\ndata: b\n\n", "Lines": "data: a\n\n" + half + half + half + "\n",
		"WithoutEnd": "data: a\n\ndata: b\n" + long + long,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := frames(strings.NewReader(in))
			if !errors.Is(err, ErrLineTooLong) || !slices.Equal(got, []string{"a"}) {
				t.Errorf("got %d frames and error %v, want the first frame and the limit", len(got), err)
			}
		})
	}
	fits := "data:" + long[:MaxLine-5] + "\n\n"
	if got, err := frames(strings.NewReader(fits)); !errors.Is(err, io.EOF) || len(got) != 1 || len(got[0]) != MaxLine-5 {
		t.Errorf("at the limit: got %d frames and error %v", len(got), err)
	}
}

// FuzzFrames holds that the frames do not depend on how the network cuts the
// stream, and that no frame holds a line's end.
func FuzzFrames(f *testing.F) {
	f.Add([]byte("data: a\n\n"), 1)
	f.Fuzz(func(t *testing.T, in []byte, cut int) {
		want, wantErr := frames(bytes.NewReader(in))
		cut = min(max(cut, 0), len(in))
		for _, r := range []io.Reader{
			iotest.OneByteReader(bytes.NewReader(in)),
			io.MultiReader(bytes.NewReader(in[:cut]), bytes.NewReader(in[cut:])),
		} {
			got, err := frames(r)
			if !slices.Equal(got, want) || fmt.Sprint(err) != fmt.Sprint(wantErr) {
				t.Errorf("cut: got %q and error %v, whole: %q and %v", got, err, want, wantErr)
			}
		}
		for _, frame := range want {
			if strings.Contains(frame, "\r") {
				t.Errorf("frame %q holds the end of a line", frame)
			}
		}
	})
}
