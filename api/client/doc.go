// Package client talks to a server of agentd.
//
//	c, err := client.New("http://127.0.0.1:8080", client.WithAPIKey(key))
//	…
//	run, err := c.StartRun(ctx, &agentdv1.StartRunRequest{SessionId: id, Text: "hello"})
//	…
//	for e, err := range c.WatchRun(ctx, run.GetRunId(), run.GetAfter()) {
//		…
//	}
//
// Requests and answers are the messages of the protos. [Client.Watch] and
// [Client.WatchRun] give each event once and in order, whatever happens to the
// connection or the server meanwhile.
//
// # Errors
//
// What the server refuses is an [Error], with a reason for programs. It comes at
// once: the same request would be refused again. When the server does not answer
// (it is away, stopping, or without its database; the connection broke; nothing
// has come for a while), calls and streams differ unless [WithPatience] is given:
// a call fails with what connect says of it, and may have been carried out, while
// a stream comes back until its context ends. With a patience both are tried
// again for that long and then end with an [AwayError]. The end of a context is
// its own error.
package client
