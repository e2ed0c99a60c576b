// Package sse serves the events of a session as server-sent events, the way
// that a browser's EventSource wants them:
//
//	GET /v1/sessions/{id}/events?after=SEQ&until=idle
//
// Each event is one message, `id: SEQ` and `data: JSON`, without an event name,
// so that onmessage gets them all. The stream replays what lies above the cursor
// and goes on with what follows. The cursor is the Last-Event-ID header, then
// the parameter after; without one everything is replayed.
//
//	cursor                            answer
//	none, empty, 0                    everything from the first event
//	an earlier seq                    what lies above it
//	the newest seq                    only what follows
//	above the newest                  400 cursor_ahead
//	not 1 to 19 ASCII digits, or
//	above 2^63-1, or given twice      400 bad_cursor
//	header and parameter              the header counts
//
// With until=idle the stream ends when everything is sent and no run is queued
// or running, and the answer is 204, which makes an EventSource stop, if that
// is so from the start. Without it the stream ends only when the session is
// deleted or the server stops; an EventSource then comes back by itself with the
// last id that it has seen, and learns the rest from the status.
//
// With types=a,b only events of these types are sent, and with channel=c only the
// emissions of that channel. The ids stay the seqs of the session, so they have
// holes, and every cursor means what it means without: who comes back with the last
// id that it has received misses nothing.
//
// The stream of one run, GET /v1/runs/{id}/events, has the same cursors, those of
// its session, and ends behind the run's last event.
//
// A comment goes out while nothing happens; it does not move the cursor.
package sse
