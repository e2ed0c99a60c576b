package builtin

// fence tells which parts of a text in Markdown are quoted as code: what stands
// between two lines of three or more backticks or tildes, those lines included. A
// fence that is not closed goes to the end of the text. The zero value is at the
// beginning of a text.
type fence struct {
	// mark is that of the fence which is open, 0 for none, and length how many of
	// them opened it.
	mark   byte
	length int

	at linePlace
	// indent is how many spaces stand at the beginning of the line; run how many of
	// sign follow them.
	indent, run int
	sign        byte
	// last is the byte before.
	last byte
}

// linePlace is where in a line a fence is.
type linePlace uint8

const (
	lineIndent  linePlace = iota
	lineMarks             // in what may be the marks of a fence
	lineInfo              // behind marks that open one
	lineClosing           // behind marks that close one
	linePlain             // in a line that is no fence
)

// minMarks is how many marks make a fence, maxIndent how many spaces may stand
// before them.
const (
	minMarks  = 3
	maxIndent = 3
)

// quotes reports whether a byte that comes next is quoted: in a fence, or right
// behind a backtick.
func (f *fence) quotes() bool {
	return f.mark != 0 || f.last == '`' || f.at == lineInfo || f.at == lineMarks && f.run >= minMarks
}

// next takes in a byte.
func (f *fence) next(b byte) {
	f.last = b
	if b == '\n' {
		f.line()
		return
	}
	switch f.at {
	case lineIndent:
		switch {
		case b == ' ' && f.indent < maxIndent:
			f.indent++
		case (b == '`' || b == '~') && (f.mark == 0 || f.mark == b):
			f.at, f.sign, f.run = lineMarks, b, 1
		default:
			f.at = linePlain
		}
	case lineMarks:
		switch {
		case b == f.sign:
			f.run++
		case f.mark == 0 && f.run >= minMarks:
			f.at = lineInfo
		case f.mark != 0 && f.run >= f.length && blank(b):
			f.at = lineClosing
		default:
			f.at = linePlain
		}
	case lineInfo:
		if b == '`' && f.sign == '`' { // it is code in a line
			f.at = linePlain
		}
	case lineClosing:
		if !blank(b) {
			f.at = linePlain
		}
	case linePlain:
	}
}

// line ends a line.
func (f *fence) line() {
	switch {
	case f.mark == 0 && (f.at == lineInfo || f.at == lineMarks && f.run >= minMarks):
		f.mark, f.length = f.sign, f.run
	case f.mark != 0 && (f.at == lineClosing || f.at == lineMarks && f.run >= f.length):
		f.mark, f.length = 0, 0
	}
	f.at, f.indent, f.run = lineIndent, 0, 0
}
