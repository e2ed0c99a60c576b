package openaitest

import (
	"math"
	"slices"
	"strings"
	"sync"
	"time"
)

// Answer is what a provider sends for one request. The zero value is an empty
// event stream that ends properly.
type Answer struct {
	// Status is the HTTP status; 0 stands for 200.
	Status int
	// Header is sent as it is, in this order. Content-Type is
	// text/event-stream where no line says otherwise.
	Header []HeaderLine
	Body   []byte
	// Cuts are the offsets at which the body is cut into writes.
	Cuts []int
	// Every cuts the body each so many bytes; 1 is the worst case, 0 none.
	Every int
	// Pause is how long to wait behind each write of the body.
	Pause time.Duration
	// End is what follows the body.
	End End
	// Holds are the offsets at which the answer stalls: [BeforeHeaders], 0 for
	// headers without a byte, [AtEnd].
	Holds map[int]*Hold

	// usage is the part of Body that is left out unless the request asks for
	// a usage report.
	usage [2]int
}

// End is how an answer ends.
type End int

// The ends. The body is sent in chunks, except with EndClose.
const (
	// EndProper says that the body is whole and keeps the connection.
	EndProper End = iota
	// EndClose closes the connection behind a body of unsaid length, so that
	// nobody can tell whether it was whole.
	EndClose
	// EndCut closes the connection where more was promised.
	EndCut
	// EndReset resets the connection.
	EndReset
)

// Places to hold an answer at, beside offsets of its body.
const (
	BeforeHeaders = -1
	AtEnd         = math.MaxInt
)

// Hold stalls an answer until it is released, the client leaves, or the test
// ends. One hold may stall several answers.
type Hold struct {
	reached, released chan struct{}
	reach, release    sync.Once
}

// NewHold returns a hold that is not released.
func NewHold() *Hold {
	return &Hold{reached: make(chan struct{}), released: make(chan struct{})}
}

// Reached is closed once an answer has come to the hold: all that is before it
// has been written.
func (h *Hold) Reached() <-chan struct{} { return h.reached }

// Release lets all answers go on. It may be called more than once.
func (h *Hold) Release() { h.release.Do(func() { close(h.released) }) }

// Hold returns a with a hold at an offset.
func (a Answer) Hold(offset int, h *Hold) Answer {
	holds := map[int]*Hold{offset: h}
	for at, other := range a.Holds {
		if at != offset {
			holds[at] = other
		}
	}
	a.Holds = holds
	return a
}

// Cut returns a with its body cut into writes at these offsets.
func (a Answer) Cut(offsets ...int) Answer {
	a.Cuts = slices.Concat(a.Cuts, offsets)
	return a
}

// Bytewise returns a with each byte in a write of its own.
func (a Answer) Bytewise() Answer {
	a.Every = 1
	return a
}

// Ending returns a with another end.
func (a Answer) Ending(e End) Answer {
	a.End = e
	return a
}

// With returns a with one more line in its header.
func (a Answer) With(name, value string) Answer {
	a.Header = append(slices.Clip(a.Header), HeaderLine{name, value})
	return a
}

// head returns the status line and the header as they are sent.
func (a Answer) head() string {
	var b strings.Builder
	b.WriteString(statusLine(a.Status))
	typed := false
	for _, h := range a.Header {
		typed = typed || strings.EqualFold(h.Name, "Content-Type")
		b.WriteString(h.Name + ": " + h.Value + "\r\n")
	}
	if !typed {
		b.WriteString("Content-Type: text/event-stream\r\n")
	}
	if a.End == EndClose {
		b.WriteString("Connection: close\r\n\r\n")
	} else {
		b.WriteString("Transfer-Encoding: chunked\r\n\r\n")
	}
	return b.String()
}

// stops returns the offsets after which something happens: a write ends there,
// or a hold is there. The last one is the body's length.
func (a Answer) stops() []int {
	n := len(a.Body)
	stops := slices.Clone(a.Cuts)
	if a.Every > 0 {
		for i := a.Every; i < n; i += a.Every {
			stops = append(stops, i)
		}
	}
	for at := range a.Holds {
		stops = append(stops, at)
	}
	stops = slices.DeleteFunc(stops, func(at int) bool { return at <= 0 || at >= n })
	stops = append(stops, n)
	slices.Sort(stops)
	return slices.Compact(stops)
}

// holdAt returns the hold at an offset of the body, nil if there is none.
func (a Answer) holdAt(offset int) *Hold {
	if h := a.Holds[offset]; h != nil || offset != len(a.Body) {
		return h
	}
	return a.Holds[AtEnd]
}

// to returns a as it is sent in answer to r.
func (a Answer) to(r *Request) Answer {
	if from, to := a.usage[0], a.usage[1]; from < to && !r.Chat.StreamOptions.IncludeUsage {
		a.Body = slices.Concat(a.Body[:from], a.Body[to:])
	}
	return a
}
