// Package scripted is a model that plays a script: for tests that need an
// exact answer, and for the demo agent, which needs no key and no network.
//
// A script is a JSON file of scenarios. The last user message picks the
// scenario, and the number of assistant messages behind it picks the answer,
// so the model keeps no state: a process that takes up a run after a crash
// gets the answer that the dead one would have got. docs/scripted.md
// describes the format by example.
//
// The model refuses a history that a real provider would refuse, so a test
// that passes with it does not hide an unpaired tool call.
package scripted
