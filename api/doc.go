// Package api is agentd's own front door: Connect services (Connect, gRPC and
// gRPC-Web, JSON and binary) and the event stream for browsers. It only
// translates: requests become commands of package loop and reads of a store,
// errors become codes. The interfaces that it needs of them are declared here.
// GET /openapi.json describes every route; package client is for programs in Go.
//
// [New] gives one handler for everything. The server around it is the caller's;
// gRPC needs cleartext HTTP/2 on the same port, and streams lift the server's
// WriteTimeout for themselves:
//
//	protocols := new(http.Protocols)
//	protocols.SetHTTP1(true)
//	protocols.SetUnencryptedHTTP2(true)
//	server := &http.Server{Handler: api.New(config), Protocols: protocols, ReadHeaderTimeout: 10 * time.Second}
//
// Cancel [Config.Stopping] before Shutdown, which otherwise waits for the
// streams.
//
// # Who may call
//
// With [Config.APIKey] every route but /healthz wants it as a bearer token.
// Without a key everybody who can connect may do everything, so the caller
// listens on the loopback interface only, and browsers are held off here: a
// request from a page of another origin is refused, and so is one whose Host is
// no loopback name (a page that rebinds its own name to 127.0.0.1 is
// "same origin" to its browser).
//
// # Errors
//
// Every error is a connect code, a reason and a sentence. The reason is the word
// for programs: in the response header agentd-reason, and in the error detail
// agentd.v1.ErrorReason. Routes that are not RPCs answer with the matching
// status and {"code":"…","reason":"…","message":"…"}. An error that is not
// foreseen is "internal" with a fixed sentence and an id; the log has the cause
// under that id. What connect refuses by itself, before a service is asked, is
// no exception; only a gRPC message of more than 1 MiB and an unknown method of
// a gRPC service have no reason.
package api
