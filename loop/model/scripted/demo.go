package scripted

import (
	_ "embed"
	"sync"
)

//go:embed demo.json
var demoJSON []byte

var parseDemo = sync.OnceValues(func() (*Script, error) { return Parse(demoJSON) })

// Demo returns the script of the demo agent. It calls the tools get_time,
// ping, memory_write and memory_search.
func Demo() *Script {
	s, err := parseDemo()
	if err != nil {
		panic("the embedded demo script is broken: " + err.Error())
	}
	return s
}
