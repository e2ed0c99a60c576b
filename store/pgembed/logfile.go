package pgembed

import (
	"fmt"
	"io"
	"os"
	"strings"
)

const (
	logLimit  = 4 << 20 // bytes, checked at each start only
	tailLimit = 4 << 10 // bytes
	tailLines = 12
)

// logFile is Postgres's own output, initdb's too. Its contents are Postgres's
// words and may quote statements, so only its owner may read it.
type logFile struct {
	file *os.File
	from int64 // where the present attempt began
}

func openLog(path string) (*logFile, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	if info, err := f.Stat(); err == nil && info.Size() > logLimit {
		if err := f.Truncate(0); err != nil {
			_ = f.Close()
			return nil, fmt.Errorf("shorten log: %w", err)
		}
	}
	return &logFile{file: f}, nil
}

// mark begins an attempt: tail shows nothing from before it.
func (l *logFile) mark() {
	if info, err := l.file.Stat(); err == nil {
		l.from = info.Size()
	}
}

// tail returns the last lines since mark, "" if there are none.
func (l *logFile) tail() string {
	info, err := l.file.Stat()
	if err != nil {
		return ""
	}
	from := max(l.from, info.Size()-tailLimit)
	text, _ := io.ReadAll(io.NewSectionReader(l.file, from, info.Size()-from))
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
}

// explain adds the end of the log to err.
func (l *logFile) explain(err error) error {
	if tail := l.tail(); tail != "" {
		return fmt.Errorf("%w; the end of %s:\n%s", err, l.file.Name(), tail)
	}
	return fmt.Errorf("%w; nothing in %s", err, l.file.Name())
}
