// Package openaitest is a fake provider for tests: it speaks Chat Completions
// over real HTTP on a loopback port, answers with scripted bytes, cut, held,
// broken off or bent as real providers do it, and refuses with a 400 whatever
// the stricter ones refuse.
//
//	p := openaitest.New(t, openaitest.Calls(openaitest.Call{ID: "c", Name: "f", Arguments: "{}"}), openaitest.Text("done"))
//	m, err := openai.New(openai.Config{BaseURL: p.URL})
//
// The recorded streams in it are named after what is odd about them; see
// [Fixtures]. What other providers do to every stream is a quirk; see
// [Quirks].
package openaitest
