package pluginhost

import (
	"bytes"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

const (
	// maxLine is how much of a line is logged, in bytes. Of each way to print no more is
	// in memory at any time, with maxHead of the process and what is just being read.
	maxLine = 4 << 10
	// maxHead is how much of the beginning is kept, for when the process does not start.
	maxHead = 1 << 10
	// lineBurst lines at once, and lineRate a second, are logged of a process. The
	// others are counted.
	lineBurst = 200
	lineRate  = 50
	// readAtOnce bytes at once and readFast a second are read of what a process prints,
	// and of more than readMuch no more than readRate a second. One that prints more
	// waits for that: reading without end takes as much of the machine as it can get,
	// and most of what was read is thrown away.
	readAtOnce = 12 << 20
	readFast   = 4 << 20
	readMuch   = 32 << 20
	readRate   = 1 << 20
	// readChunk bytes have to be owed before anybody waits: many small pauses cost more
	// than what is read between them.
	readChunk = 32 << 10
)

// output is what one process prints, on all its ways. It is safe for concurrent use.
type output struct {
	log *slog.Logger
	now func() time.Time

	mu      sync.Mutex
	head    []byte
	streams []*lines
	// logged is of lines, by now; soon and long are of bytes that may be read. It is real
	// time that is waited for these.
	logged, soon, long allowance
	// dropped lines, and their bytes, have not been told of yet.
	dropped, droppedBytes int
}

func newOutput(log *slog.Logger, now func() time.Time) *output {
	began := time.Now()
	return &output{
		log: log, now: now,
		logged: newAllowance(lineBurst, lineRate, now()), soon: newAllowance(readAtOnce, readFast, began), long: newAllowance(readMuch, readRate, began),
	}
}

// stream is a way to print, such as stdout. Its Write has no errors.
func (o *output) stream(name string) io.Writer {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := &lines{output: o, name: name}
	o.streams = append(o.streams, s)
	return s
}

// beginning is what was printed first, escaped.
func (o *output) beginning() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return escape(o.head)
}

// flush logs what is left: lines without an end, and how many were left out.
func (o *output) flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.logged.grow(o.now())
	for _, s := range o.streams {
		s.end()
	}
	o.tellDropped()
}

// line logs one, or counts it. The caller holds the lock.
func (o *output) line(stream string, text []byte, cut int) {
	if o.logged.left < 1 {
		o.dropped++
		o.droppedBytes += len(text) + cut
		return
	}
	o.logged.left--
	o.tellDropped()
	attrs := []slog.Attr{slog.String("stream", stream), slog.String("line", escape(text))}
	if cut > 0 {
		attrs = append(attrs, slog.Int("cut_bytes", cut))
	}
	o.log.LogAttrs(nil, slog.LevelInfo, "plugin printed", attrs...) //nolint:staticcheck // there is no context to what a process prints
}

// spend takes bytes off what may be read, and returns how long to wait before more is.
// The caller holds the lock.
func (o *output) spend(n int) time.Duration {
	now, wait := time.Now(), time.Duration(0)
	for _, a := range []*allowance{&o.soon, &o.long} {
		a.grow(now)
		a.left -= float64(n)
		if a.left <= -readChunk {
			wait = max(wait, time.Duration(-a.left/a.perSecond*float64(time.Second)))
		}
	}
	return wait
}

func (o *output) tellDropped() {
	if o.dropped > 0 {
		o.log.Warn("plugin printed more than is logged", slog.Int("lines", o.dropped), slog.Int("bytes", o.droppedBytes))
		o.dropped, o.droppedBytes = 0, 0
	}
}

// allowance is a number that grows with time, up to most. Less than none is owed.
type allowance struct {
	most, perSecond float64
	// left is what there was at the time.
	left float64
	at   time.Time
}

func newAllowance(most, perSecond float64, now time.Time) allowance {
	return allowance{most: most, perSecond: perSecond, left: most, at: now}
}

func (a *allowance) grow(now time.Time) {
	a.left, a.at = min(a.most, a.left+now.Sub(a.at).Seconds()*a.perSecond), now
}

// lines is one way to print. It keeps what there is of a line, at most maxLine.
type lines struct {
	output *output
	name   string
	kept   []byte
	cut    int
}

// Write implements io.Writer. It takes as long as there has to be until more is read.
func (l *lines) Write(b []byte) (int, error) {
	time.Sleep(l.take(b))
	return len(b), nil
}

// take logs what was printed, and returns how long to wait before more is read.
func (l *lines) take(b []byte) time.Duration {
	n, o := len(b), l.output
	o.mu.Lock()
	defer o.mu.Unlock()
	o.logged.grow(o.now())
	o.head = append(o.head, b[:min(len(b), maxHead-len(o.head))]...)
	for len(b) > 0 {
		end := bytes.IndexByte(b, '\n')
		if end < 0 {
			l.keep(b)
			break
		}
		l.keep(b[:end])
		l.tell()
		b = b[end+1:]
	}
	return o.spend(n)
}

func (l *lines) keep(b []byte) {
	room := min(len(b), maxLine-len(l.kept))
	l.kept = append(l.kept, b[:room]...)
	l.cut += len(b) - room
}

// tell logs the line.
func (l *lines) tell() {
	l.output.line(l.name, bytes.TrimSuffix(l.kept, []byte{'\r'}), l.cut)
	l.kept, l.cut = l.kept[:0], 0
}

// end logs a line that has no end.
func (l *lines) end() {
	if len(l.kept) > 0 {
		l.tell()
	}
}

// escape makes a text of one line of it, with nothing in it that a terminal obeys.
func escape(b []byte) string {
	var out strings.Builder
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		switch {
		case r == utf8.RuneError && n == 1:
			out.WriteString(`\x` + strconv.FormatUint(uint64(b[0])|0x100, 16)[1:])
		case strconv.IsPrint(r):
			out.WriteRune(r)
		default:
			quoted := strconv.QuoteRune(r)
			out.WriteString(quoted[1 : len(quoted)-1])
		}
		b = b[n:]
	}
	return out.String()
}
