// Package openai speaks the Chat Completions API, streamed, with every
// provider that offers it under some base URL.
//
// The streams in the wild differ from the written API, and the package reads
// what they meant: a tool call without an index, or with the index of another
// one, is told apart by its id; a keep-alive of any shape is skipped; a stream
// is whole if it named a finish reason or said [DONE], whichever end follows,
// and otherwise was cut off. An answer without any data in it that is plainly
// something else, such as a login page, is an error of its own: not_a_stream, or
// what it says if it is an error object. Nothing is retried here.
//
// A tool call goes back to the provider under the id that the provider gave
// it, unless it gave none or an earlier call of the request has the same one:
// then under agentd's id. So every id of a request is unique, and the ids of a
// conversation's beginning never change. Arguments that are no JSON object are
// sent back as {"invalid_arguments": "…"}, since many providers refuse a
// request whose arguments they cannot parse. Reasoning is not sent back.
package openai
