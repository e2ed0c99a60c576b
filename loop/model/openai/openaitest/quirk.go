package openaitest

import (
	"maps"
	"slices"
	"strconv"
)

// quirkTable says what each quirk does.
var quirkTable = map[string]string{
	"badargs":           "the arguments are cut off",
	"comment":           "comments stand between the frames",
	"crlf":              "lines end in CRLF",
	"dupindex":          "every call has the index 0",
	"emptydata":         "frames without data stand between the frames",
	"errnull":           `every chunk has "error":null`,
	"fr_content_filter": "the finish reason is content_filter",
	"fr_empty":          "an empty finish reason comes before the right one",
	"fr_end_turn":       "the finish reason is end_turn",
	"fr_eos":            "the finish reason is eos",
	"fr_function_call":  "the finish reason is function_call",
	"fr_stop":           "the finish reason is stop, also with tool calls",
	"html":              "a proxy answers 502 with a page",
	"midstream":         "an error object comes in the place of the calls and of the end",
	"nocharset":         "the content type is application/octet-stream",
	"nodone":            "there is no [DONE]",
	"nofinish":          "there is no finish reason",
	"noid":              "calls have no id",
	"noindex":           "calls have no index",
	"norole":            "no delta names the role",
	"nospace":           "no space follows the colon",
	"nullcontent":       "the first delta has a null content",
	"objargs":           "the arguments are an object",
	"preamble":          "a chunk without choices comes first",
	"rate":              "429 with Retry-After",
	"reasoning":         "reasoning is called reasoning, not reasoning_content",
	"refusal":           "the text is in refusal",
	"repeatid":          "every piece of a call repeats its id",
	"repeatname":        "every piece of a call repeats its name",
	"reset":             "the connection is reset behind the first piece of text",
	"truncate":          "the stream ends properly behind the first piece of text",
	"usage_nullchoices": "the usage report has null choices",
	"usage_on_last":     "usage stands in the chunk with the finish reason, asked for or not",
	"whole":             "a call comes in one piece",
}

// Quirks returns the names of the quirks, sorted.
func Quirks() []string { return slices.Sorted(maps.Keys(quirkTable)) }

// Meaning says what a quirk does, "" for one that does not exist.
func Meaning(quirk string) string { return quirkTable[quirk] }

// argumentPiece is how many characters of arguments a delta has.
const argumentPiece = 5

// call writes a tool call.
func (w *writer) call(i int, c Call) {
	index, id := `"index":`+strconv.Itoa(i)+`,`, `"id":`+quoted(c.ID)+`,`
	if w.bends["dupindex"] {
		index = `"index":0,`
	}
	if w.bends["noindex"] {
		index = ""
	}
	if w.bends["noid"] {
		id = ""
	}
	piece := func(id, name, arguments string) {
		w.delta(`{"tool_calls":[{` + index + id + `"function":{` + name + `"arguments":` + arguments + `}}]}`)
	}
	name := `"name":` + quoted(c.Name) + `,`
	switch {
	case w.bends["objargs"]:
		piece(id+`"type":"function",`, name, c.Arguments)
		return
	case w.bends["badargs"]:
		piece(id+`"type":"function",`, name, quoted(c.Arguments[:max(len(c.Arguments)-2, 0)]))
		return
	case w.bends["whole"], w.bends["dupindex"], w.bends["noindex"]:
		piece(id+`"type":"function",`, name, quoted(c.Arguments))
		return
	}
	piece(id+`"type":"function",`, name, `""`)
	for part := range slices.Chunk([]rune(c.Arguments), argumentPiece) {
		piece(w.either("repeatid", id, ""), w.either("repeatname", name, ""), quoted(string(part)))
	}
}
