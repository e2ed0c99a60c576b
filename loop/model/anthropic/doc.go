// Package anthropic speaks the Messages API, streamed.
//
// A stream is whole if it said message_stop, and otherwise was cut off. The
// kind of an event is read from its data, so that frames without an event line
// are events too; kinds of events, blocks and deltas that are not known are
// skipped. Arguments that were cut off stay cut off: nothing is repaired here.
// A tool call without any arguments has {}, but if the limit on the answer
// ended it, it has no more than the beginning of an object: nobody knows what
// would have followed.
//
// A call ends early in four ways: nothing comes (first_byte_timeout,
// idle_timeout, data_timeout), too much comes (line_too_long, answer_too_long,
// too_many_calls), the provider says that it failed, or the caller's context
// ends. Nothing is retried here, and no redirect is followed; a
// [loop.ModelError] says whether and when to try again.
//
// The API is strict about a history, and so what is sent has its shape:
//
//   - Messages of one role in a row are one message. Tool results are the first
//     blocks of the user's message behind the calls.
//   - Blank text is left out, and what is then empty too. A blank result is
//     "(no output)". A history that does not begin with the user has
//     "(no message)" in front: to leave out what comes before the user's first
//     word would leave nothing of one that was shortened in the middle of a turn.
//   - System messages, wherever they stand, are part of the system text.
//   - A call goes back under the provider's id, unless it gave none, or one that
//     the API does not take, or an earlier call has the same one: then under
//     agentd's. Arguments that are no JSON object are sent back as
//     {"invalid_arguments": "…"}.
//   - Reasoning is not sent back: it would need its signature, which is not kept.
//
// The API key is held where no error, log or panic can print it, and added to a
// request below everything that looks at requests.
package anthropic
