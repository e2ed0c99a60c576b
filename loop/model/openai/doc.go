// Package openai speaks the Chat Completions API, streamed, with every
// provider that offers it under some base URL.
//
// The streams in the wild differ from the written API, and the package reads
// what they meant: a tool call without an index, or with the index of another
// one, is told apart by its id; a character that is cut between two deltas is
// joined again; a keep-alive of any shape is skipped; a stream is whole if it
// named a finish reason or said [DONE] after something, whichever end follows,
// and otherwise was cut off. An answer without any data in it that is plainly
// something else, such as a login page, is an error of its own: not_a_stream, or
// what it says if it is an error object. Arguments of a tool call that were cut
// off stay cut off: nothing is repaired here. What must be said differently to a
// provider is in its [Quirks].
//
// A call ends early in four ways: nothing comes (first_byte_timeout,
// idle_timeout, data_timeout), too much comes (line_too_long, answer_too_long,
// too_many_calls), the provider says that it failed, or the caller's context
// ends. Nothing is retried here, and no redirect is followed; a
// [loop.ModelError] says whether and when to try again.
//
// A tool call goes back to the provider under the id that the provider gave
// it, unless it gave none or an earlier call of the request has the same one:
// then under agentd's id. So every id of a request is unique, and the ids of a
// conversation's beginning never change. Arguments that are no JSON object are
// sent back as {"invalid_arguments": "…"}, since many providers refuse a
// request whose arguments they cannot parse.
//
// The API key is held where no error, log or panic can print it, and added to a
// request below everything that looks at requests.
package openai
