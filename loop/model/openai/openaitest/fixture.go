package openaitest

import (
	"embed"
	"encoding/json"
	"io/fs"
	"strings"
)

//go:embed testdata
var testdata embed.FS

// Fixture is an answer with the bytes of a recorded stream; a name that does
// not exist panics.
func Fixture(name string) Answer { return Answer{Body: FixtureBytes(name)} }

// FixtureBytes returns the bytes of a recorded stream. The caller owns them.
func FixtureBytes(name string) []byte {
	if name == "long_line" {
		return longLine()
	}
	data, err := testdata.ReadFile("testdata/" + name + ".sse")
	if err != nil {
		panic("openaitest: there is no fixture " + name)
	}
	return data
}

// Fixtures returns the names of the recorded streams, sorted, without
// long_line, which is 2 MiB long.
func Fixtures() []string {
	files, err := fs.Glob(testdata, "testdata/*.sse")
	if err != nil {
		panic(err) // the pattern is a constant
	}
	for i, f := range files {
		files[i] = strings.TrimSuffix(strings.TrimPrefix(f, "testdata/"), ".sse")
	}
	return files
}

// UTF8Cuts returns the offsets inside of characters of the fixture utf8, and
// the text that it has to give.
func UTF8Cuts() (offsets []int, text string) {
	data, err := testdata.ReadFile("testdata/utf8.cuts.json")
	var cuts struct {
		Offsets []int  `json:"cut_at_byte_offsets"`
		Text    string `json:"expected_text"`
	}
	if err == nil {
		err = json.Unmarshal(data, &cuts)
	}
	if err != nil {
		panic(err) // the file is a part of the package
	}
	return cuts.Offsets, cuts.Text
}

// ImportedMessage is a message of a history that another program kept: texts
// may be empty, and roles may repeat.
type ImportedMessage struct {
	Role       string
	Text       string
	ToolCallID string `json:"tool_call_id"`
	ToolCalls  []struct {
		ID, Name string
		Args     json.RawMessage
	} `json:"tool_calls"`
}

// ImportedHistory returns a history with empty and blank texts and with roles
// that repeat.
func ImportedHistory() []ImportedMessage {
	var list []ImportedMessage
	data, err := testdata.ReadFile("testdata/history.json")
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	if err != nil {
		panic(err) // the file is a part of the package
	}
	return list
}

// LongBody is how long the argument in the fixture long_line is, in bytes.
const LongBody = 2_101_473

// longLine is one call whose arguments fill a line of 2 MiB. It is made here,
// since nobody wants it in a repository.
func longLine() []byte {
	const chunk = `data: {"id":"cc-1","object":"chat.completion.chunk","created":1700000000,"model":"test-model-1","choices":[{"index":0,"delta":`
	return []byte(chunk + `{"role":"assistant","content":""},"finish_reason":null}]}` + "\n\n" +
		chunk + `{"tool_calls":[{"index":0,"id":"call_A","type":"function","function":{"name":"save_note","arguments":"{\"body\":\"` +
		strings.Repeat("x", LongBody) + `\"}"}}]},"finish_reason":null}]}` + "\n\n" +
		chunk + `{},"finish_reason":"tool_calls"}]}` + "\n\ndata: [DONE]\n\n")
}
